"""`input_tensors`: symbolic tensors and input layers."""

from collections import OrderedDict

import keras
import numpy as np
import pytest
from keras import layers, ops

from regraft import UsageError, clone_model

from .networks import (
    STEPS,
    Block,
    Scale,
    X,
    assert_same_network,
    assert_same_network_after_build,
    mlp,
    numbers,
    sequential,
    two_inputs,
)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: (x,)])
@pytest.mark.parametrize("build", [mlp, sequential])
def test_a_single_input(build, wrap):
    model = build()
    x = keras.Input((4,), name="mine", batch_size=2)
    new = clone_model(model, input_tensors=wrap(x))
    assert type(new) is type(model)
    assert new.inputs == [x]
    assert new.inputs[0] is x
    assert new.outputs[0].shape == (2, 2)
    assert_same_network(model, new, X)


def test_an_input_layer_and_the_models_own_inputs():
    model = two_inputs()
    mine = [layers.InputLayer((4,), name="a"), layers.InputLayer((4,), name="b")]
    new = clone_model(model, input_tensors=mine)
    assert new.inputs[0] is mine[0].output
    assert_same_network(model, new, [X, X + 1])
    new = clone_model(model, input_tensors=model.inputs)
    assert all(a is b for a, b in zip(new.inputs, model.inputs, strict=True))
    assert_same_network(model, new, [X, X + 1])
    assert_same_network(model, clone_model(new), [X, X + 1])


def test_a_dict_of_inputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    y = {"sum": a + b, "dense": layers.Dense(2)(a)}
    model = keras.Model({"a": a, "b": b}, y)
    given = {"b": keras.Input((4,), name="b"), "a": keras.Input((4,), name="a")}
    new = clone_model(model, input_tensors=given)
    assert new.input["b"] is given["b"]
    assert_same_network(model, new, {"a": X, "b": X + 1})


@pytest.mark.parametrize("given_as", [dict, OrderedDict])
@pytest.mark.parametrize("made_as", [dict, OrderedDict])
@pytest.mark.parametrize("nested", [False, True])
def test_inputs_are_matched_by_key(made_as, given_as, nested):
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    inputs = made_as([("b", b), ("a", a)])
    model = keras.Model([inputs] if nested else inputs, a - 2 * b)
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    given = given_as([("b", second), ("a", first)])
    new = clone_model(model, input_tensors=[given] if nested else given)
    values = keras.Model([first, second], new.output)([X, X + 1])
    # numpy rounds elsewhere.
    np.testing.assert_allclose(numbers(values)[0], X - 2 * (X + 1), rtol=1e-5)
    given = given_as([("a", first), ("b", second)])
    new = clone_model(model, input_tensors=[given] if nested else given)
    values = keras.Model([first, second], new.output)([X, X + 1])
    # numpy rounds elsewhere.
    np.testing.assert_allclose(numbers(values)[0], X - 2 * (X + 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "count"),
    [(lambda a, b: a, 1), (lambda a, b: [a], 1), (lambda a, b: [a, b, a], 3)],
)
def test_too_few_or_too_many_tensors(given, count):
    a, b = keras.Input((4,)), keras.Input((4,))
    match = "`input_tensors` must have the same structure as model.input"
    with pytest.raises(ValueError, match=match) as caught:
        clone_model(two_inputs(), input_tensors=given(a, b))
    assert f"2 expected, {count} received" in str(caught.value)


def test_another_structure():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    model = keras.Model({"a": a, "b": b}, a + b)
    match = "must have the same structure as model.input"
    with pytest.raises(UsageError, match=match):
        clone_model(model, input_tensors=(a, b))
    with pytest.raises(UsageError, match=match):
        clone_model(two_inputs(), input_tensors={"a": a, "b": b})
    with pytest.raises(UsageError, match=match):
        clone_model(sequential(), input_tensors={"x": a})


def test_one_tensor_for_a_sequential():
    a = keras.Input((4,))
    with pytest.raises(UsageError, match="must contain a single tensor"):
        clone_model(sequential(), input_tensors=[a, a])


@pytest.mark.parametrize("build", [mlp, sequential])
def test_something_else_than_a_tensor(build):
    with pytest.raises(UsageError, match="must be KerasTensors, InputLayers") as caught:
        clone_model(build(), input_tensors="x")
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("build", [mlp, sequential])
def test_a_tensor_in_the_middle_of_a_graph_is_not_touched(build):
    x = keras.Input((6,))
    dense = layers.Dense(4)
    middle = dense(x)
    history, before = middle._keras_history, dict(vars(middle))
    calls = len(dense._inbound_nodes), len(dense._outbound_nodes)
    model = build()
    new = clone_model(model, input_tensors=middle)
    assert middle._keras_history is history
    assert vars(middle) == before
    assert (len(dense._inbound_nodes), len(dense._outbound_nodes)) == calls
    assert type(new) is type(model)
    assert new.input_shape == (None, 4)
    assert_same_network(model, new, X)
    assert keras.Model(x, new(middle)).output_shape == (None, 2)


def test_a_tensor_of_no_graph():
    new = clone_model(mlp(), input_tensors=keras.KerasTensor((3, 4)))
    assert new.output_shape == (3, 2)


def test_layers_are_built_for_another_shape():
    x = keras.Input((4, 4, 1))
    y = layers.Conv2D(2, 3, name="conv")(x)
    y = Scale(2.0, ops.tanh)(layers.Flatten()(y))
    y = Block(name="block")(y)
    y = layers.Dense(3, name="dense", kernel_regularizer="l2")(y)
    model = keras.Model(x, y)
    model.compile("sgd", "mse")
    model.get_layer("conv").mark = model.get_layer("dense").mark = object()
    new = clone_model(model, input_tensors=keras.Input((6, 6, 1)))
    shapes = [tuple(w.shape) for w in new.weights]
    assert shapes == [
        (3, 3, 1, 2),
        (2,),
        (32,),
        (3,),
        (32, 3),
        (3,),
        (3, 3),
        (3,),
    ]
    assert hasattr(new.get_layer("conv"), "mark")
    assert hasattr(new.get_layer("dense"), "mark")
    assert [type(a) for a in new.layers] == [type(a) for a in model.layers]
    assert len(new.losses) == 1
    images = np.ones((2, 6, 6, 1))
    assert np.isfinite(new.train_on_batch(images, np.ones((2, 3))))
    assert model(np.ones((2, 4, 4, 1))).shape == (2, 3)


def test_attention_is_built_for_another_shape():
    x = keras.Input((3, 2))
    model = keras.Model(x, layers.MultiHeadAttention(2, 3, name="mha")(x, x))
    longer = clone_model(model, input_tensors=keras.Input((5, 2)))
    assert longer.output_shape == (None, 5, 2)
    wider = clone_model(model, input_tensors=keras.Input((3, 7)))
    assert wider.output_shape == (None, 3, 7)
    assert len(wider._flatten_layers()) == len(model._flatten_layers())
    assert len(wider.weights) == len(model.weights)


def test_a_stateful_layer_is_built_for_another_batch_size():
    x = keras.Input(batch_shape=(4, 3, 2))
    y = layers.Bidirectional(layers.LSTM(2, stateful=True))(x)
    model = keras.Model(x, layers.Dense(2)(y))
    model(np.ones((4, 3, 2)))
    new = clone_model(model, input_tensors=keras.Input(batch_shape=(2, 3, 2)))
    model.layers[1].reset_state()
    new.set_weights(model.get_weights())
    expected = numbers(model(np.concatenate([STEPS, STEPS])))[0][:2]
    # Batches of another size are multiplied in another order.
    np.testing.assert_allclose(numbers(new(STEPS))[0], expected, rtol=1e-5)


def test_a_layer_that_cannot_be_built_for_another_shape():
    class Early(layers.Layer):
        def __init__(self, size):
            super().__init__(name="early")
            self.gain = self.add_weight(shape=(size,), name="gain")

        def build(self, shape):
            self.offset = self.add_weight(shape=(shape[-1],), name="offset")

        def call(self, x):
            return ops.matmul(x, self.gain[:, None]) + ops.sum(self.offset)

        def get_config(self):
            return {"size": self.gain.shape[0]}

    x = keras.Input((4,))
    model = keras.Model(x, Early(4)(x), name="model")
    with pytest.raises(Exception, match=r"Early|early") as caught:
        clone_model(model, input_tensors=keras.Input((5,)))
    assert "called model/early" in caught.value.__notes__[0]


def test_unbuilt_sequential_is_built():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    x = keras.Input((4,), name="mine")
    new = clone_model(model, input_tensors=x)
    assert type(new) is keras.Sequential
    assert new.built
    assert new.inputs[0] is x
    assert not model.built
    assert_same_network_after_build(model, new)


def test_a_dict_of_inputs_keeps_its_order():
    b, a = keras.Input((4,), name="b"), keras.Input((4,), name="a")
    model = keras.Model({"b": b, "a": a}, layers.subtract([a, b]))
    given = {name: keras.Input((4,), name=name) for name in ("a", "b")}
    assert list(clone_model(model, input_tensors=given).input) == ["b", "a"]
