"""Fresh and shared weights of layers that learn beside Keras's variables."""

import keras
import numpy as np
import pytest
from keras import layers
from keras.src.saving.serialization_lib import SafeModeScope

import regraft as rg

BACKEND = keras.backend.backend()
X = np.random.default_rng(0).random((8, 3), "float32")

if BACKEND == "torch":
    import torch

    def variable():
        return torch.nn.Parameter(torch.ones(3))

    def buffer():
        return torch.zeros(3)

    def fill(value, number):
        with torch.no_grad():
            value.fill_(number)

elif BACKEND == "tensorflow":
    import tensorflow as tf

    def variable():
        return tf.Variable(tf.ones(3))

    def buffer():
        return tf.Variable(tf.zeros(3), trainable=False)

    def fill(value, number):
        value.assign(tf.fill(3, float(number)))

else:
    pytest.skip("what JAX learns is in Keras's variables", allow_module_level=True)


class LearnsBeside(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(3)
        self.scale, shift = variable(), buffer()
        if BACKEND == "torch":
            self.register_buffer("shift", shift)
        else:
            self.shift = shift

    def call(self, x):
        return self.dense(x) * self.scale + self.shift


class WasGiven(LearnsBeside):
    def __init__(self, tool):
        super().__init__()
        self.tool = tool


def trained(layer):
    layer(X)
    fill(layer.scale, 7)
    fill(layer.shift, 5)
    return layer


def numbers(value):
    return np.array(keras.ops.convert_to_numpy(value))


def test_values_beside_the_variables_start_anew():
    layer = trained(LearnsBeside())
    new = rg.clone(layer, weights="fresh")
    np.testing.assert_array_equal(numbers(new.scale), [1, 1, 1])
    np.testing.assert_array_equal(numbers(new.shift), [0, 0, 0])
    np.testing.assert_array_equal(numbers(layer.scale), [7, 7, 7])
    outer = keras.Sequential([layer])
    kept = rg.clone(outer, weights="fresh", keep=layer)
    np.testing.assert_array_equal(numbers(kept.layers[0].scale), [7, 7, 7])


def test_values_that_nobody_knows_are_refused():
    layer = trained(WasGiven(object()))
    with pytest.raises(rg.CopyError, match="nobody knows how it starts") as caught:
        rg.clone(layer, weights="fresh")
    assert "was_given: scale" in str(caught.value)
    assert "make it with `add_weight()` in `build()`" in str(caught.value)


def test_values_beside_the_variables_are_shared_with_them():
    layer = trained(LearnsBeside())
    new = rg.clone(layer, weights="share")
    assert new is not layer
    assert new.dense.kernel is layer.dense.kernel
    assert new.scale is layer.scale
    assert new.shift is layer.shift


def states(layer):
    return {n: numbers(x) for n, x in layer.module.state_dict().items()}


@pytest.mark.skipif(BACKEND != "torch", reason="modules of torch")
def test_modules_of_torch_draw_as_their_constructors_do():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    wrapper = layers.TorchModuleWrapper(module, output_shape=(None, 4))
    model = keras.Sequential([keras.Input((3,)), wrapper, layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, X[:, :1], verbose=0)
    old = states(wrapper)
    copies = [rg.clone(model, weights="fresh", seed=seed) for seed in (1, 1, 2)]
    one, same, other = (states(copy.layers[0]) for copy in copies)
    for name in old:
        np.testing.assert_array_equal(one[name], same[name])
        assert not np.array_equal(one[name], old[name])
        assert name.startswith("1.") == np.array_equal(one[name], other[name])
    np.testing.assert_array_equal(one["1.running_mean"], np.zeros(4))
    new = copies[0].layers[0]
    assert new.module[0].weight is new.variables[0].value
    for name, value in states(wrapper).items():
        np.testing.assert_array_equal(value, old[name])


@pytest.mark.skipif(BACKEND != "torch", reason="modules of torch")
def test_a_configuration_with_trained_weights_is_no_start():
    """So it is when files are trusted, and on older versions of Keras."""
    wrapper = layers.TorchModuleWrapper(torch.nn.Linear(3, 4), output_shape=(None, 4))
    wrapper.build((None, 3))
    with torch.no_grad():
        wrapper.module.weight.fill_(7)
    with SafeModeScope(False):
        new = rg.clone(wrapper, weights="fresh", seed=1)
    assert not np.any(states(new)["weight"] == 7)
    assert np.all(states(wrapper)["weight"] == 7)


@pytest.mark.skipif(BACKEND != "torch", reason="modules of torch")
def test_modules_of_the_user_are_refused_unless_they_can_be_made_again():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            torch.nn.init.constant_(self.linear.weight, 9.0)
            self.norm = torch.nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(self.linear(x))

    class Makes(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = Scaled()

        def call(self, x):
            return self.inner(x)

    alone = keras.Sequential([layers.TorchModuleWrapper(Scaled())])
    alone(X)
    with pytest.raises(rg.CopyError, match="nobody knows how it starts"):
        rg.clone(alone, weights="fresh")
    model = Makes()
    for _ in range(3):
        model(X, training=True)
    fill(model.inner.module.linear.weight, 1)
    fresh = rg.clone(model, weights="fresh").inner.module
    np.testing.assert_array_equal(numbers(fresh.linear.weight), np.full((3, 3), 9))
    np.testing.assert_array_equal(numbers(fresh.norm.running_mean), np.zeros(3))


@pytest.mark.skipif(BACKEND != "torch", reason="modules of torch")
def test_modules_that_are_kept_or_were_drawn_are_not_reset():
    class Starts(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 2)
            torch.nn.init.constant_(self.inner.module.bias, 7.0)
            self.norm = torch.nn.BatchNorm1d(2, affine=False)

        def call(self, x):
            return self.norm(self.inner(x))

    model = Starts()
    model(X, training=True)
    fresh = rg.clone(model, weights="fresh")
    np.testing.assert_array_equal(numbers(fresh.inner.module.bias), [7, 7])
    np.testing.assert_array_equal(numbers(fresh.norm.module.running_mean), [0, 0])
    module = torch.nn.Linear(3, 2)
    before = numbers(module.weight).copy()
    alone = keras.Sequential([layers.TorchModuleWrapper(module)])
    alone(X)
    with pytest.raises(rg.CopyError, match="nobody knows"):
        rg.clone(alone, weights="fresh", keep=module)
    np.testing.assert_array_equal(numbers(module.weight), before)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="variables of TensorFlow")
def test_counters_and_variables_of_tensorflow_that_a_build_makes():
    class Counts(layers.Layer):
        def __init__(self, tool):
            super().__init__()
            self.calls = tf.Variable(3, dtype=tf.int64)

        def build(self, shape):
            self.w = self.add_weight(shape=(3,), initializer="random_normal", name="w")

        def call(self, x):
            return x * self.w

    class Draws(layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(3,), initializer="random_normal", name="w")
            self.v = tf.Variable(tf.zeros(3) + self.w.value)

        def call(self, x):
            return x * self.w + self.v

    counts, draws = Counts(object()), Draws()
    for layer in (counts, draws):
        layer(X)
    assert int(rg.clone(counts, weights="fresh").calls) == 3
    new = rg.clone(draws, weights="fresh")
    assert not np.array_equal(numbers(new.v), numbers(draws.v))
    assert new._trackable_children()["v"] is new.v
