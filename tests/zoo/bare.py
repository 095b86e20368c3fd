"""What is not a model: layers on their own and `keras.Function`."""

import keras
import numpy as np
from keras import layers, ops

from .data import floats, tokens
from .registry import Case, case


def _called(layer, inputs):
    layer(inputs)
    return Case(layer, inputs)


class Block(layers.Layer):
    """A residual block of layers that are built when it is called."""

    def __init__(self, width):
        super().__init__()
        self.norm = layers.LayerNormalization()
        self.dense = layers.Dense(width, activation="gelu")
        self.drop = layers.Dropout(0.2, seed=1)

    def call(self, x, training=None):
        return x + self.drop(self.dense(self.norm(x)), training=training)


@case("function/one_input")
def _():
    x = keras.Input((4,))
    function = keras.Function(x, layers.Dense(2)(x) * 2.0)
    return Case(function, floats(4), training_calls_ok=False)


@case("function/nested_structures")
def _():
    x = {"a": keras.Input((4,)), "b": (keras.Input((4,)),)}
    hidden = layers.Dense(4)(x["a"])
    function = keras.Function(x, [hidden, {"sum": hidden + x["b"][0]}])
    inputs = {"a": floats(4), "b": (floats(4, seed=1),)}
    return Case(function, inputs, training_calls_ok=False)


@case("function/between_inner_tensors")
def _():
    x = keras.Input((4,))
    hidden = layers.Dense(3)(x)
    y = layers.Dense(2)(ops.relu(hidden))
    function = keras.Function(hidden, y)
    return Case(function, floats(3), training_calls_ok=False)


@case("function/of_a_model")
def _():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    function = keras.Function(model.inputs[0], model.outputs[0])
    return Case(function, floats(4), training_calls_ok=False)


@case("function/no_layers")
def _():
    x = keras.Input((4,))
    function = keras.Function(x, ops.tanh(x) + np.ones(4, "float32"))
    return Case(function, floats(4), training_calls_ok=False)


@case("layer/dense")
def _():
    return _called(layers.Dense(3), floats(4))


@case("layer/unbuilt_dense")
def _():
    return Case(layers.Dense(3), floats(4))


@case("layer/called_on_a_symbol")
def _():
    layer = layers.Dense(3)
    layer(keras.Input((4,)))
    return Case(layer, floats(4))


@case("layer/composite")
def _():
    return _called(Block(4), floats(4))


@case("layer/of_a_model")
def _():
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2)(layers.Dense(3)(x)))
    return Case(model.layers[1], floats(4))


@case("layer/bidirectional")
def _():
    return _called(layers.Bidirectional(layers.LSTM(2)), floats(5, 4))


@case("layer/embedding")
def _():
    return _called(layers.Embedding(7, 3, mask_zero=True), tokens())


@case("layer/lambda")
def _():
    return _called(layers.Lambda(lambda x: x * 2.0), floats(4))


@case("layer/spectral_normalization")
def _():
    return _called(layers.SpectralNormalization(layers.Dense(3)), floats(4))


@case("layer/input")
def _():
    return Case(layers.InputLayer(shape=(4,), name="entry"))


@case("layer/cell")
def _():
    return Case(layers.LSTMCell(3))


@case("layer/identity")
def _():
    return Case(layers.Identity(), floats(4))
