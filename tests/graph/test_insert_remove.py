"""insert and remove."""

import keras
import pytest
from keras import layers, ops

import regraft as rg

from . import models
from .checks import answers, assert_good, assert_kept, bits, values

pytestmark = pytest.mark.wiring


def same_answers(one, other):
    inputs = models.numbers(one)
    return answers(one, inputs) == answers(other, inputs)


def test_after_a_layer_all_that_used_it_use_the_new_one(tmp_path):
    model, new = models.branched(), layers.Dense(6, name="new")
    graph = rg.graph(model).insert(new, after="bn")
    made = assert_good(graph, model, tmp_path, new)
    assert {ref.path for ref in graph["new"].consumers} == {"b", "add"}
    assert_kept(model, made)


def test_before_a_layer_only_it_uses_the_new_one(tmp_path):
    model, new = models.branched(), layers.Dense(6, name="new")
    graph = rg.graph(model).insert(new, before="b")
    made = assert_good(graph, model, tmp_path, new)
    assert {ref.path for ref in graph["new"].consumers} == {"b"}
    assert {ref.path for ref in graph["bn"].consumers} == {"new", "add"}
    assert_kept(model, made)


def test_at_one_of_several_inputs(tmp_path):
    model = models.branched()
    graph = rg.graph(model).insert(layers.Dense(6, name="n"), before="add", port=1)
    assert [s.path for s in graph["add"].sources] == ["relu", "n"]
    assert_good(graph, model, tmp_path)
    graph = rg.graph(model).insert(layers.Dense(6, name="n"), before="add", port=-2)
    assert [s.path for s in graph["add"].sources] == ["n", "bn"]


def test_behind_the_last_layer_and_behind_an_input(tmp_path):
    model = models.two_ends()
    graph = rg.graph(model).insert(layers.Dense(3, name="more"), after="p")
    graph = graph.insert(layers.Dense(4, name="less"), after="a")
    made = assert_good(graph, model, tmp_path)
    assert [r.path for r in graph.outputs] == ["o", "more"]
    assert list(made.output) == ["o", "p"]
    assert_kept(model, made)


def test_in_several_places_each_gets_a_copy(tmp_path):
    model = models.branched()
    graph = rg.graph(model).insert(layers.Dropout(0.5), after=("a", "b"))
    made = assert_good(graph, model, tmp_path)
    first, second = (x for x in made.layers if isinstance(x, layers.Dropout))
    assert first is not second
    assert same_answers(model, made)
    graph = rg.graph(model).insert(
        lambda old: layers.Activation("tanh", name=f"{old.name}_tanh"),
        before=layers.Dense,
    )
    assert {"a_tanh", "b_tanh", "head_tanh"} <= {n.path for n in graph}


def test_behind_a_shared_layer_it_is_shared(tmp_path):
    model = models.in_a_row()
    graph = rg.graph(model).insert(layers.Dense(4, name="new"), after="shared")
    made = assert_good(graph, model, tmp_path)
    assert graph["new"].calls == 3
    assert len(made.get_layer("new").weights) == 2
    assert_kept(model, made)


@pytest.mark.parametrize("place", ["after", "before"])
def test_at_one_call_of_a_shared_layer(place, tmp_path):
    model = models.in_a_row()
    graph = rg.graph(model).insert(
        layers.Dense(4, name="new"), **{place: "shared"}, call=1
    )
    made = assert_good(graph, model, tmp_path)
    assert (graph["shared"].calls, graph["new"].calls) == (3, 1)
    assert "at call 1 only" in graph.notes[0]
    assert_kept(model, made)


def test_operations(tmp_path):
    model = models.in_a_row()
    made = assert_good(
        rg.graph(model).insert(ops.negative, after="shared"), model, tmp_path
    )
    kinds = [type(op).__name__ for op in made.operations]
    assert kinds.count("Negative") == 3


def test_at_one_output_of_a_layer_with_several(tmp_path):
    x = keras.Input((4, 3), name="x")
    out, state, cell = layers.LSTM(
        5, return_sequences=True, return_state=True, name="lstm"
    )(x)
    last = layers.LSTM(5, name="last")(out, initial_state=[state, cell])
    model = keras.Model(x, [last, state], name="states")
    graph = rg.graph(model).insert(layers.Dense(5, name="n"), after="lstm", port=1)
    assert [str(s) for s in graph["last"].sources] == ["lstm", "n", "lstm[2]"]
    assert [str(o) for o in graph.outputs] == ["last", "n"]
    assert_kept(model, assert_good(graph, model, tmp_path))
    graph = rg.graph(model).remove("last", keep=rg.Ref("lstm", output=2))
    assert [str(o) for o in graph.outputs] == ["lstm[2]", "lstm[1]"]
    assert rg.graph(model).remove("last", keep="lstm").outputs[0].path == "lstm"


# --- Sequential -----------------------------------------------------------------------


def test_a_sequential_model_stays_one(tmp_path):
    model = models.trained(models.chain())
    new = layers.Dense(4, name="new")
    for graph in (
        rg.graph(model).insert(new, after="a"),
        rg.graph(model).insert(new, before="a"),
        rg.graph(model).insert(new, after="x"),
        rg.graph(model).append(new),
        rg.graph(model).remove("b"),
        rg.graph(model).remove("c"),
    ):
        made = assert_good(graph, model, tmp_path, new)
        assert type(made) is keras.Sequential
        assert [x.name for x in made.layers] == [n.path for n in graph][1:]
        models.step(made)


def test_a_sequential_model_becomes_a_functional_one(tmp_path):
    model = models.trained(models.chain())
    with pytest.warns(rg.ClassChangedWarning, match="cannot be a Sequential any more"):
        made = rg.graph(model).insert(ops.tanh, after="a").build()
    assert type(made).__name__ == "Functional"
    assert values(made) == values(model)
    models.step(made)


# --- remove ---------------------------------------------------------------------------


def test_what_used_it_uses_what_it_was_given(tmp_path):
    model = models.branched()
    graph = rg.graph(model).remove("bn")
    made = assert_good(graph, model, tmp_path)
    assert [s.path for s in graph["b"].sources] == ["a"]
    assert [s.path for s in graph["add"].sources] == ["relu", "a"]
    assert_kept(model, made, but=["bn/"])
    assert {f.path for f in rg.lineage(made).of("dropped")} == {
        f"bn/{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")
    }


def test_of_several_inputs_one_is_kept(tmp_path):
    model = models.branched()
    for keep, source in ((0, "relu"), ("bn", "bn"), (-1, "bn"), (rg.Ref("bn"), "bn")):
        graph = rg.graph(model).remove("add", keep=keep)
        assert [s.path for s in graph["head"].sources] == [source]
        made = assert_good(graph, model)
        assert ("b" in graph) == (source == "relu")
        assert_kept(model, made, but=["b/"])


def test_a_whole_branch_needs_no_choice(tmp_path):
    model = models.branched()
    graph = rg.graph(model).remove(("b", "relu", "add"))
    made = assert_good(graph, model, tmp_path)
    assert [x.name for x in made.layers] == ["x", "a", "bn", "head"]


def test_calls_in_a_row(tmp_path):
    model = models.in_a_row()
    made = assert_good(rg.graph(model).remove("drop"), model, tmp_path)
    assert same_answers(model, made)
    made = assert_good(rg.graph(model).remove(("drop", "shared")), model)
    assert answers(made, models.numbers(model)) == [bits(models.numbers(model))]
    graph = rg.graph(model).remove("shared", call=1)
    made = assert_good(graph, model, tmp_path)
    assert graph["shared"].calls == 2
    assert values(made) == values(model)


def test_the_last_layer_and_the_first(tmp_path):
    model = models.branched()
    made = assert_good(rg.graph(model).remove("head"), model, tmp_path)
    assert made.output_shape == (None, 6)
    graph = rg.graph(model).remove(("a", "add"), keep="relu")
    made = assert_good(graph, model, tmp_path, mismatch="fit")
    assert made.get_layer("b").kernel.shape == (8, 6)


def test_what_cancels_out_leaves_nothing():
    model = models.trained(models.branched())
    for place in ("a", "bn", "relu", "add", "head", "x"):
        graph = rg.graph(model)
        units = graph[place].outputs[0].shape[-1]
        graph = graph.insert(layers.Dense(units, name="new"), after=place)
        made = graph.remove("new").build()
        rg.verify(model, made, False).raise_if_different()


def test_keep_may_be_meant_for_one_layer_of_several():
    model = models.branched()
    graph = rg.graph(model)
    [first, *_] = graph["add"].sources
    made = graph.remove(("add", "relu"), keep=first.path).build()
    assert not {"add", "relu"} & {layer.name for layer in made.layers}
    rg.graph(model).remove("relu", keep=0).build()
