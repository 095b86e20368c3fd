"""join."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

from . import models
from .checks import answers, assert_alone, bits, untouched, values

pytestmark = pytest.mark.wiring


def net(name, units=3, inside="dense"):
    x = keras.Input((4,), name="x")
    return keras.Model(x, layers.Dense(units, name=inside)(x), name=name)


def built(graph, *parts):
    assert graph.lint() == []
    with untouched(parts[0], *parts[1:]):
        made = graph.build()
    assert_alone(made, *parts)
    return made


def test_a_chain():
    first, second = net("first", units=4), net("second")
    made = built(rg.join(first, second), first, second)
    x = models.numbers(first)
    assert answers(made, x) == [bits(second(first(x)))]
    assert [x.name for x in made.layers][1:] == ["first", "second"]
    assert {f.what for f in rg.lineage(made)} == {"copied"}


def test_names_do_not_clash(tmp_path):
    one, other = net("net", units=4), net("net")
    made = built(rg.join(one, other, name="both"), one, other)
    assert made.name == "both"
    assert [x.name for x in made.layers][1:] == ["net", "net_1"]
    path = tmp_path / "m.keras"
    made.save(path)
    x = models.numbers(one)
    assert answers(keras.saving.load_model(path), x) == answers(made, x)


def test_in_parallel():
    one, other = net("one"), net("other", units=2)
    made = built(rg.join(one, other, how="parallel"), one, other)
    x = models.numbers(one)
    assert answers(made, x) == [bits(one(x)), bits(other(x))]
    made = built(rg.join(one, other, how="parallel", share_inputs=False), one, other)
    assert len(made.inputs) == 2


def test_with_a_merge():
    one, other, merge = net("one"), net("other"), layers.Average(name="mean")
    made = built(rg.join(one, other, merge=merge), one, other, merge)
    x = models.numbers(one)
    assert answers(made, x) == [bits(layers.Average()([one(x), other(x)]))]
    made = rg.join(one, other, merge=layers.Concatenate()).build()
    assert made.output_shape == (None, 6)


def test_a_model_twice_is_one_model():
    one = net("one", units=4)
    made = built(rg.join(one, one), one)
    assert values(made) == values(one)
    x = models.numbers(one)
    assert answers(made, x) == [bits(one(one(x)))]


def test_graphs_that_were_edited():
    one, other = net("one"), net("other")
    left = rg.graph(one).append(layers.Dense(4, name="more"))
    graph = rg.join(left, other).prefix("p_")
    made = graph.build()
    assert made.output_shape == (None, 3)
    assert "p_one/p_more" in graph
    kernel = ops.convert_to_numpy(one.get_layer("dense").kernel)
    inside = made.get_layer("p_one").get_layer("p_dense")
    assert np.array_equal(ops.convert_to_numpy(inside.kernel), kernel)


def test_several_ends():
    one, other = models.two_ends(), net("other", units=2)
    made = rg.join(rg.graph(one).outputs("o").append(layers.Dense(4)), other).build()
    assert made.output_shape == (None, 2)
    assert len(made.inputs) == 2
    assert models.trained(made).optimizer.built


def test_joined_models_are_edited_inside():
    one, other = net("one", units=4), net("other")
    graph = rg.join(one, other).insert(layers.Dense(4, name="new"), after="one/dense")
    made = built(graph, one, other)
    assert "one/new" in rg.graph(made)


def test_edits_of_one_model_stay_apart():
    model = models.branched()
    edits = [
        rg.graph(model).set("b", activation="tanh"),
        rg.graph(model).set("b", activation="sigmoid").remove("relu"),
        rg.graph(model),
    ]
    made = rg.join(*edits, how="parallel").build()
    x = models.numbers(model)
    alone = [answers(graph.build(), x)[0] for graph in edits]
    assert answers(made, x) == alone
    assert "net shares no layers with other models any more." in rg.lineage(made).notes


def by_name(name, taken, returned=None):
    """A model that takes a dict, and returns each input times another number."""
    x = {key: keras.Input((4,), name=key) for key in taken}
    factors = {key: float(i + 2) for i, key in enumerate(returned or taken)}
    made = {k: x[k if k in x else taken[0]] * n for k, n in factors.items()}
    return keras.Model(x, made, name=name)


def test_dicts_are_connected_by_their_keys():
    first, second = by_name("first", "mn"), by_name("second", "nm")
    made = rg.join(first, second).build()
    m, n = np.ones((1, 4), "float32"), np.full((1, 4), 10.0, "float32")
    wanted = second(first({"m": m, "n": n}))
    found = dict(zip("mn", made([m, n]), strict=True))
    assert {k: bits(v) for k, v in found.items()} == {
        k: bits(v) for k, v in wanted.items()
    }
    left, right = (keras.Input((4,), name=key) for key in "nm")
    listed = keras.Model([left, right], left - right, name="listed")
    made = rg.join(first, listed).build()
    assert answers(made, [m, n]) == [bits(ops.convert_to_tensor(n * 3 - m * 2))]


def test_other_keys_are_refused():
    first = by_name("first", "mn")
    for other in (by_name("second", "no"), by_name("second", "ab")):
        for how in ("chain", "parallel"):
            with pytest.raises(rg.UsageError) as error:
                rg.join(first, other, how=how)
            assert "tensors by other names than it takes" in str(error.value)
            assert "where: second" in str(error.value)
            assert "received: m, n" in str(error.value)
    made = rg.join(first, other, how="parallel", share_inputs=False).build()
    assert len(made.inputs) == 4


@pytest.mark.parametrize("name", ["a/b", "", 3])
def test_names_of_joined_models(name):
    with pytest.raises(TypeError, match="`name` must be a string without slashes"):
        rg.join(net("one", units=4), net("other"), name=name)
