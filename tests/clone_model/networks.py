"""Networks for `clone_model`, and what is asked of its results."""

import keras
import numpy as np
from keras import layers, ops

BACKEND = keras.backend.backend()
X = np.random.default_rng(0).random((2, 4), "float32")
STEPS = np.array([[[1, 2], [3, 4], [0, 0]], [[5, 6], [0, 0], [0, 0]]], "float32")
TOKENS = np.array([[1, 2, 0], [3, 0, 0]], "int32")


def numbers(x):
    return [np.asarray(ops.convert_to_numpy(t)) for t in keras.tree.flatten(x)]


def assert_same_network(model, new, x):
    """With the same weights, both compute the same."""
    new.set_weights(model.get_weights())
    for ours, theirs in zip(numbers(new(x)), numbers(model(x)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def assert_independent(model, new):
    mine = {id(v) for v in model.variables}
    assert not any(id(v) in mine for v in new.variables)
    mine = {id(layer) for layer in model._flatten_layers()}
    assert not any(id(layer) in mine for layer in new._flatten_layers())


def again(layer):
    return type(layer).from_config(layer.get_config())


def call(layer, *args, **kwargs):
    return layer(*args, **kwargs)


def mlp(name="mlp"):
    x = keras.Input((4,), name="x")
    y = layers.Dense(3, activation="relu", name="hidden")(x)
    return keras.Model(x, layers.Dense(2, name="head")(y), name=name)


def shared():
    x = keras.Input((4,), name="x")
    twice = layers.Dense(4, name="twice")
    return keras.Model(x, layers.Dense(2, name="head")(twice(twice(x)) + x))


def two_inputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    y = layers.Subtract(name="minus")([layers.Dense(4, name="dense")(a), b])
    return keras.Model([a, b], y)


class Scale(layers.Layer):
    """A layer without a configuration."""

    def __init__(self, factor, function):
        super().__init__()
        self.factor, self.function = factor, function

    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), name="gain")

    def call(self, x):
        return self.function(x) * self.gain * self.factor


class Block(layers.Layer):
    """A layer made of layers, with a weight of its own."""

    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.inner = layers.Dense(units, name="inner")

    def build(self, shape):
        self.inner.build(shape)
        self.gain = self.add_weight(shape=(self.units,), name="gain")

    def call(self, x):
        return self.inner(x) * self.gain

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Tagged(keras.Model):
    """A Functional subclass with a constructor and attributes of its own."""

    def __init__(self, units, tag):
        x = keras.Input((4,), name="x")
        y = layers.Dense(units, name="features")(x)
        super().__init__(x, layers.Dense(2, name="head")(y))
        self.tag = tag
        self.features = y
        self.head = self.get_layer("head")
        self.spare = layers.Dense(3, name="spare")
        self.spare.build((None, 4))
        self.extractor = keras.Model(x, y, name="extractor")


def sequential():
    return keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])


def nested():
    deep = layers.Dense(3, name="deep")
    x = keras.Input((4,))
    inner = keras.Model(x, deep(x) + 1.0, name="inner")
    y = keras.Input((4,))
    stack = keras.Sequential([keras.Input((4,)), deep], name="stack")
    outputs = layers.Add(name="add")([inner(y), stack(y), deep(y)])
    return keras.Model(y, outputs, name="outer")


def assert_same_network_after_build(model, new):
    model(X), new(X)
    assert_independent(model, new)
    assert_same_network(model, new, X)


def nodes(model):
    return [n for depth in model._nodes_by_depth.values() for n in depth]
