"""Weights to which nobody gave a name, which Keras numbers over all models."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

from .checks import bits


class Unnamed(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3))
        self.shift = self.add_weight(shape=(3,), initializer="ones")

    def call(self, x):
        return ops.matmul(x, self.kernel) + self.shift


def unnamed():
    x = keras.Input((8, 4))
    return keras.Model(x, Unnamed(name="last")(Unnamed(name="first")(x)), name="model")


def assert_kept(model, new):
    assert [v.path for v in new.weights] == [v.path for v in model.weights]
    assert [bits(v) for v in new.weights] == [bits(v) for v in model.weights]


@pytest.mark.parametrize(
    "edit",
    [
        lambda graph: graph.set("last", trainable=False),
        lambda graph: graph.inputs((None, 4)),
        lambda graph: graph.append(layers.Activation("relu")),
    ],
    ids=["set", "inputs", "append"],
)
def test_they_are_copied(edit):
    model = unnamed()
    new = edit(rg.graph(model)).build()
    assert_kept(model, new)
    assert {fate.what for fate in rg.lineage(new)} == {"copied"}


def test_they_follow_another_input():
    model = unnamed()
    assert_kept(model, rg.clone(model, inputs=(9, 4)))


def test_another_shape_is_told():
    model = unnamed()
    graph = rg.graph(model).insert(layers.Dense(4, name="wide"), before="last")
    path = model.get_layer("last").kernel.path
    with pytest.raises(rg.MismatchError) as caught:
        graph.build()
    assert f"{path} (3, 3) -> (4, 3)" in str(caught.value)
    new = graph.build(mismatch="fit")
    assert {fate.path: fate.what for fate in rg.lineage(new).of("fitted")} == {
        path: "fitted"
    }
    last, old = new.get_layer("last"), model.get_layer("last")
    kernel = ops.convert_to_numpy(last.kernel)
    np.testing.assert_array_equal(kernel[:3], ops.convert_to_numpy(old.kernel))
    assert bits(last.shift) == bits(old.shift)
    assert [v.path for v in last.weights] == [v.path for v in old.weights]


@pytest.mark.wiring
def test_a_real_network():
    model = keras.applications.ConvNeXtTiny(
        weights=None, include_top=False, input_shape=(32, 32, 3)
    )
    new = rg.clone(model, inputs=(64, 64, 3))
    assert_kept(model, new)


class Counted(layers.Layer):
    """Gives each weight another name, whenever it is built."""

    numbers = itertools.count()

    def build(self, shape):
        name = f"scale_{next(self.numbers)}"
        self.scale = self.add_weight(
            shape=shape[-1:], name=name, initializer="random_normal"
        )

    def call(self, x):
        return x * self.scale


def test_weights_whose_names_are_counted():
    x = keras.Input((8, 4))
    model = keras.Model(x, Counted()(x))
    new = rg.graph(model).inputs((9, 4)).build()
    assert_kept(model, new)
    assert_kept(model, rg.clone(model, inputs=(9, 4)))
    fresh = rg.clone(model, weights="fresh", seed=1)
    assert bits(fresh.weights[0]) != bits(model.weights[0])


class FromValue(layers.Layer):
    """Makes a variable of a value, which Keras allows in `build()`."""

    def build(self, shape):
        self.scale = keras.Variable(np.full(shape[-1], 2.0, "float32"), name="scale")

    def call(self, x):
        return x * self.scale


def test_a_variable_that_is_made_of_a_value():
    x = keras.Input((8, 4))
    model = keras.Model(x, layers.Dense(4, name="dense")(x))
    state = np.random.get_state()[1].copy()
    new = rg.graph(model).append(FromValue()).build()
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    x = np.ones((2, 8, 4), "float32")
    ours, theirs = (ops.convert_to_numpy(m(x)) for m in (new, model))
    np.testing.assert_array_equal(ours, theirs * 2)
