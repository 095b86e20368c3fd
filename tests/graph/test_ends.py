"""append, outputs, inputs and extract."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

from . import models
from .checks import answers, assert_good, assert_kept, bits, values

pytestmark = pytest.mark.wiring


def test_append(tmp_path):
    model, new = models.branched(), layers.Dense(2, name="new")
    graph = rg.graph(model).append(new, ops.softmax)
    made = assert_good(graph, model, tmp_path, new)
    assert [n.path for n in graph][-2] == "new"
    assert made.output_shape == (None, 2)
    assert_kept(model, made)
    two = models.two_ends()
    graph = rg.graph(two).append(layers.ReLU(name="r"), layers.ReLU(name="s"), output=1)
    made = assert_good(graph, two, tmp_path)
    assert [r.path for r in graph.outputs] == ["o", "s"]
    assert list(made.output) == ["o", "p"]


def test_outputs(tmp_path):
    model = models.branched()
    one = assert_good(rg.graph(model).outputs("relu"), model, tmp_path)
    assert one.output_shape == (None, 6)
    assert {f.path for f in rg.lineage(one).of("dropped")} == {
        "head/kernel",
        "head/bias",
    }
    two = assert_good(rg.graph(model).outputs("head", "bn"), model, tmp_path)
    assert two.output_shape == [(None, 3), (None, 6)]
    named = assert_good(rg.graph(model).outputs(deep="head", low="a"), model, tmp_path)
    assert set(named.output) == {"deep", "low"}
    x = models.numbers(model)
    assert answers(two, x)[:1] == answers(model, x)


def test_one_output_of_a_list():
    model = models.branched()
    two = rg.graph(model).outputs("head", "bn").build()
    one = assert_good(rg.graph(two).outputs("bn"), two)
    x = models.numbers(model)
    assert answers(one, x) == answers(two, x)[1:]


def test_outputs_of_a_shared_layer():
    model = models.in_a_row()
    graph = rg.graph(model).outputs(rg.Ref("shared", 1), rg.graph(model).nodes[1])
    made = assert_good(graph, model)
    x = models.numbers(model)
    shared = model.get_layer("shared")
    assert answers(made, x) == [bits(shared(shared(x))), bits(shared(x))]


def test_outputs_inside_nested_models(tmp_path):
    model = models.nested()
    graph = rg.graph(model).outputs("pair/side", "attention")
    made = assert_good(graph, model, tmp_path)
    assert "pair was taken apart" in graph.notes[0]
    assert values(made).items() <= values(model).items()
    graph = rg.graph(model).replace("encoder", rg.clone, call=0)
    graph = graph.outputs("encoder_1/ffn/relu")
    made = assert_good(graph, model, tmp_path)
    assert made.output_shape == (None, 6, 4)


def test_extract(tmp_path):
    model = models.branched()
    made = assert_good(
        rg.graph(model).extract(inputs="bn", outputs="add"), model, tmp_path
    )
    assert (made.input_shape, made.output_shape) == ((None, 6), (None, 6))
    x = np.ones((2, 6), "float32")
    relu, b = model.get_layer("relu"), model.get_layer("b")
    assert answers(made, x) == [bits(ops.add(relu(b(x)), x))]
    assert not made.compiled


def test_extract_drops_inputs_that_are_not_needed(tmp_path):
    model = models.two_ends()
    graph = rg.graph(model).extract(outputs="embedding")
    made = assert_good(graph, model, tmp_path)
    assert [r.path for r in graph.inputs] == ["b"]
    assert made.output_shape == (None, 4, 2)
    graph = rg.graph(model).extract(inputs={"u": "flat", "v": "a"}, outputs=["cat"])
    made = assert_good(graph, model, tmp_path)
    assert set(made.input) == {"u", "v"}
    assert isinstance(made.output, list)


def test_extract_across_levels(tmp_path):
    model = models.nested()
    for inputs, outputs, kept in (
        (["pair/left", "pair/right"], ["pair/plus", "narrow"], {"side", "narrow"}),
        ("narrow", ["stack", "rnn"], {"attention", "stack"}),
        (["pair/plus", "pair/side"], "cat", set()),
    ):
        graph = rg.graph(model).extract(inputs=inputs, outputs=outputs)
        made = assert_good(graph, model, tmp_path)
        assert values(made).items() <= values(model).items()
        assert kept <= {path.split("/")[0] for path in values(made)} | {"side"}


def test_a_masked_tensor_as_an_input():
    model = models.nested()
    graph = rg.graph(model).extract(inputs="embedding", outputs="encoder")
    assert not graph.nodes[0].outputs[0].is_masked
    assert_good(graph, model)


def test_inputs_of_other_shapes():
    model = models.nested()
    made = assert_good(rg.graph(model).inputs((9,)), model)
    assert made.input_shape == (None, 9)
    assert values(made) == values(model)
    vectors = models.branched()
    graph = rg.graph(vectors).inputs((5,))
    made = assert_good(graph, vectors, mismatch="fit")
    assert [f.path for f in rg.lineage(made).of("fitted")] == ["a/kernel"]
    made = rg.graph(vectors).inputs(keras.Input((8,), batch_size=3, name="y")).build()
    assert made.input_shape == (3, 8)


def test_inputs_inside(tmp_path):
    model = models.nested()
    made = assert_good(rg.graph(model).inputs("narrow"), model, tmp_path)
    assert made.input_shape == (None, 6, 4)
    made = assert_good(rg.graph(model).inputs("pair/left", "pair/right"), model)
    assert len(made.inputs) == 2


def test_an_array_for_an_input(tmp_path):
    model = models.two_ends()
    tokens = np.array([[1, 2, 3, 0], [0, 1, 1, 1]])
    made = assert_good(rg.graph(model).inputs(b=tokens), model, tmp_path)
    a = models.numbers(model)["a"]
    assert answers(made, a) == answers(model, {"a": a, "b": tokens})


def test_the_same_again():
    model = models.trained(models.branched())
    for graph in (rg.graph(model).outputs("head"), rg.graph(model).inputs((8,))):
        rg.verify(model, graph.build(), False).raise_if_different()


@pytest.mark.parametrize("by_name", [True, False])
def test_losses_stay_with_their_outputs(by_name):
    x = keras.Input((4,), name="x")
    ends = [layers.Dense(2, name="y")(x), layers.Dense(2, name="z")(x)]
    model = keras.Model(x, [*ends, layers.Dense(2, name="w")(x)])
    losses = {"y": "mse", "z": "mae", "w": "mse"}
    model.compile("sgd", losses if by_name else [*losses.values()])
    made = rg.graph(model).outputs("z", "y", "w").build()
    assert made.output_names == ["z", "y", "w"]
    assert not made.compiled
    assert "not compiled any more: it has other outputs" in rg.lineage(made).notes[0]
    same = rg.graph(model).append(layers.ReLU(name="last"), output=1).build()
    assert same.output_names == ["y", "last", "w"]
    assert same.compiled
