"""What random models found, each in its smallest form."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft as rg

from .customs import WIDTH, Tied


class Unnamed(layers.Layer):
    """Makes weights whose names Keras counts."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(WIDTH,), initializer="normal")
        self.shift = self.add_weight(shape=(WIDTH,), initializer="zeros")

    def call(self, x):
        return x * self.scale + self.shift


def chain(*parts):
    return keras.Sequential([keras.Input((WIDTH,)), *parts])


def arrays(variables):
    return [keras.ops.convert_to_numpy(v) for v in variables]


def test_fresh_weights_of_a_layer_that_names_none():
    model = chain(Unnamed(), Unnamed())
    for variable in model.weights:
        variable.assign(keras.ops.full((WIDTH,), 5.0))
    fresh, again = (rg.clone(model, weights="fresh", seed=1) for _ in range(2))
    scale, shift, second_scale, second_shift = arrays(fresh.weights)
    assert not np.array_equal(scale, second_scale)
    assert np.all(np.abs(scale) < 1)
    assert not shift.any()
    assert not second_shift.any()
    for left, right in zip(arrays(fresh.weights), arrays(again.weights), strict=True):
        np.testing.assert_array_equal(left, right)
    assert [v.path for v in fresh.weights] == [v.path for v in model.weights]


@pytest.mark.parametrize("trainable", [True, False])
def test_fresh_weights_of_a_layer_with_lora(trainable):
    model = chain(layers.Dense(WIDTH))
    model.layers[0].enable_lora(2)
    model.trainable = trainable
    fresh, again = (rg.clone(model, weights="fresh", seed=1) for _ in range(2))
    assert [v.path for v in fresh.weights] == [v.path for v in model.weights]
    assert [v.trainable for v in fresh.weights] == [v.trainable for v in model.weights]
    for left, right in zip(arrays(fresh.weights), arrays(again.weights), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_prefix_moves_the_weights_of_a_layer_built_elsewhere():
    source = layers.Dense(WIDTH, name="source")
    source.build((None, WIDTH))
    model = chain(Tied(source))
    twin = rg.clone(model, prefix="twin_")
    paths = [v.path for each in (model, twin) for v in each.weights]
    assert len(set(paths)) == len(paths)
    x = keras.Input((WIDTH,))
    both = keras.Model(x, [model(x), twin(x)])
    both.compile("sgd", "mse")
    both.get_state_tree()  # Raises if two variables have the same path.
