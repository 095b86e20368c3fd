"""replace and wrap."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

from . import models
from .checks import answers, assert_good, assert_kept, bits, values

pytestmark = pytest.mark.wiring


def test_a_layer_by_a_layer(tmp_path):
    model = models.branched()
    new = layers.Dense(6, activation="tanh", name="c")
    graph = rg.graph(model).replace("b", new)
    made = assert_good(graph, model, tmp_path, new)
    assert [x.name for x in made.layers] == ["x", "a", "bn", "c", "relu", "add", "head"]
    assert_kept(model, made, but=["b/"])
    assert made.get_layer("c").activation is keras.activations.tanh
    assert {f.path: f.what for f in rg.lineage(made) if f.what != "copied"} == {
        "c/kernel": "fresh",
        "c/bias": "fresh",
        "b/kernel": "dropped",
        "b/bias": "dropped",
    }


def test_a_function_of_the_old_layer(tmp_path):
    model = models.branched()
    graph = rg.graph(model).replace(
        layers.Dense, lambda old: layers.Dense(old.units, name=f"{old.name}_new")
    )
    made = assert_good(graph, model, tmp_path)
    assert [n.path for n in graph.find(layers.Dense)] == ["a_new", "b_new", "head_new"]
    assert_kept(model, made, but=["a/", "b/", "head/"])


def test_a_layer_that_was_trained_brings_its_weights():
    model, new = models.branched(), layers.Dense(6, name="b")
    new.build((None, 6))
    made = assert_good(rg.graph(model).replace("b", new), model, None, new)
    assert bits(made.get_layer("b").kernel) == bits(new.kernel)
    assert [f.path for f in rg.lineage(made).of("given")] == ["b/kernel", "b/bias"]


def test_weights_can_be_taken_over():
    model = models.branched()
    new = layers.Dense(6, activation="gelu", name="c")
    graph = rg.graph(model).replace("b", new, transfer=True)
    made = assert_good(graph, model, None, new)
    for name in ("kernel", "bias"):
        old = getattr(model.get_layer("b"), name)
        assert bits(getattr(made.get_layer("c"), name)) == bits(old)
    [kernel] = [f for f in rg.lineage(made) if f.path == "c/kernel"]
    assert (kernel.what, kernel.source) == ("copied", "b/kernel")
    assert not rg.lineage(made).of("dropped")  # Their values live on.


def test_a_layer_by_a_model_and_by_an_operation(tmp_path):
    model = models.branched()
    small = keras.Sequential(
        [keras.Input((6,)), layers.Dense(6, name="inside")], name="small"
    )
    graph = rg.graph(model).replace("b", small).replace("relu", ops.gelu)
    made = assert_good(graph, model, tmp_path, small)
    assert bits(made.get_layer("small").layers[0].kernel) == bits(
        small.layers[0].kernel
    )
    x = models.numbers(model)
    h = model.get_layer("bn")(model.get_layer("a")(x))
    expected = model.get_layer("head")(ops.gelu(small(h)) + h)
    np.testing.assert_allclose(
        ops.convert_to_numpy(made(x)), ops.convert_to_numpy(expected), atol=1e-5
    )


def test_an_operation_by_a_layer(tmp_path):
    model = models.two_ends()
    graph = rg.graph(model).replace("add*", layers.ReLU(name="relu"))
    made = assert_good(graph, model, tmp_path)
    assert made.get_layer("relu").output.shape == (None, 12)
    x = keras.Input((4,), name="x")
    plus = keras.Model(x, x + layers.Dense(4, name="d")(x))
    made = assert_good(rg.graph(plus).replace("add*", layers.Add(name="sum")), plus)
    assert answers(made, models.numbers(plus)) == answers(plus, models.numbers(plus))


def test_a_block_by_one_layer(tmp_path):
    model = models.branched()
    one = layers.Dense(6, name="one")
    made = assert_good(
        rg.graph(model).replace(("b", "relu", "add"), one), model, tmp_path, one
    )
    assert [x.name for x in made.layers] == ["x", "a", "bn", "one", "head"]
    same_name = layers.Dense(6, name="relu")
    made = assert_good(rg.graph(model).replace(("b", "relu"), same_name), model)
    assert made.get_layer("relu").kernel.shape == (6, 6)


def test_a_block_with_several_ends():
    model = models.branched()
    block = ("bn", "b", "relu")  # `add` gets what `bn` and what `relu` returns.
    made = assert_good(
        rg.graph(model).replace(block, models.Halves(name="halves")), model
    )
    assert {s.path for s in rg.graph(made)["add"].sources} == {"halves"}


def test_a_layer_of_another_width_changes_what_comes_after():
    model = models.chain()
    graph = rg.graph(model).replace("a", layers.Dense(7, name="wide"))
    assert graph["c"].sources[0].path == "b"
    assert graph["b"].outputs[0].shape == (None, 7)
    with pytest.raises(rg.MismatchError, match=r"c/kernel \(4, 2\) -> \(7, 2\)"):
        graph.build()
    made = assert_good(graph, model, mismatch="fit")
    old, new = model.get_layer("c").kernel, made.get_layer("c").kernel
    assert bits(ops.convert_to_numpy(new)[:4]) == bits(old)


def test_a_shared_layer_at_all_its_calls_or_at_one(tmp_path):
    model = models.in_a_row()
    graph = rg.graph(model).replace("shared", layers.Dense(4, name="new"))
    made = assert_good(graph, model, tmp_path)
    assert len(made.get_layer("new")._inbound_nodes) == 3
    graph = rg.graph(model).replace("shared", layers.Dense(4, name="new"), call=1)
    made = assert_good(graph, model, tmp_path)
    assert [(n.path, n.call) for n in graph.nodes][1:4] == [
        ("shared", 0),
        ("new", 0),
        ("drop", 0),
    ]
    assert_kept(model, made)
    assert "shared is no longer shared by all its calls" in graph.notes[0]
    assert rg.lineage(made).notes[0] == graph.notes[0]


def test_a_shared_layer_by_an_operation(tmp_path):
    model = models.in_a_row()
    made = assert_good(rg.graph(model).replace("shared", ops.tanh), model, tmp_path)
    x = models.numbers(model)
    assert answers(made, x) == [bits(ops.tanh(ops.tanh(ops.tanh(x))))]


def test_wrap(tmp_path):
    model = models.branched()
    graph = rg.graph(model).wrap("b", layers.SpectralNormalization)
    made = assert_good(graph, model, tmp_path)
    inside = graph.find(lambda n: n.path.endswith("/b")).one()
    assert isinstance(made.get_layer(inside.path.split("/")[0]).layer, layers.Dense)
    assert_kept(model, made)
    assert [f.what for f in rg.lineage(made) if f.what != "copied"] == ["fresh"]


def test_wrap_in_a_wrapper_of_ones_own(tmp_path):
    model = models.in_a_row()
    graph = rg.graph(model).wrap("shared", lambda old: models.Scaled(old, name="s"))
    made = assert_good(graph, model, tmp_path)
    x = models.numbers(model)
    assert answers(made, x) == answers(model, x)
    assert len(made.get_layer("s")._inbound_nodes) == 3
    graph = rg.graph(model).wrap("shared", models.Scaled, call=0)
    assert_kept(model, assert_good(graph, model, tmp_path))


def test_wrap_at_any_depth(tmp_path):
    model = models.nested()
    graph = rg.graph(model).wrap(
        ("encoder/dense", "narrow"), lambda old: layers.TimeDistributed(old)
    )
    made = assert_good(graph, model, tmp_path)
    assert values(made) == values(model)


def test_wrap_a_model(tmp_path):
    model = models.nested()
    for call in (None, 1):
        graph = rg.graph(model).wrap("encoder", models.Scaled, call=call)
        made = assert_good(graph, model)
        assert_kept(model, made)
    [name] = {n.path for n in graph} - {n.path for n in rg.graph(model)}
    assert made.get_layer(name).layer is not made.get_layer("encoder")


def test_replaced_by_its_clone_it_is_the_same():
    model = models.trained(models.branched())
    for where in ("a", "b", "add", layers.Dense, "*[!x]"):
        made = rg.graph(model).replace(where, rg.clone).build()
        rg.verify(model, made, False).raise_if_different()
