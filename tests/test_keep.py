"""`keep=`: what a kept layer consists of is shared, however it is reached."""

import keras
import numpy as np
from keras import layers, ops

import regraft as rg

X = np.random.default_rng(0).random((3, 4), "float32")


def numbers(x):
    return ops.convert_to_numpy(x)


def test_a_tie_to_a_kept_layer():
    x, kept = keras.Input((4,)), layers.Dense(4, name="kept")
    model = keras.Model(x, ops.matmul(kept(x), kept.kernel))
    new = rg.clone(model, keep=[kept])
    assert [v is kept.kernel for v in new.weights] == [True, False]
    kept.kernel.assign(kept.kernel * 5)
    np.testing.assert_array_equal(numbers(new(X)), numbers(model(X)))


def test_an_optimizer_of_kept_weights():
    x, kept = keras.Input((4,)), layers.Dense(4, name="kept")
    model = keras.Model(x, layers.Dense(2)(kept(x)))
    model.compile("adam", "mse")
    model.train_on_batch(X, X[:, :2])
    for compiled in ("copy", "fresh"):
        new = rg.clone(model, keep=[kept], compiled=compiled)
        before = numbers(kept.kernel).copy()
        new.train_on_batch(X, X[:, :2])
        assert not np.array_equal(numbers(kept.kernel), before)


def test_a_layer_inside_a_kept_model():
    x = keras.Input((4,))
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    model = keras.Model(x, inner(x))
    model.first = inner.layers[0]
    assert rg.clone(model, keep=[inner]).first is inner.layers[0]
    assert rg.clone(model).first is not inner.layers[0]


class Tied(layers.Layer):
    def __init__(self, kernel=None, **kwargs):
        super().__init__(**kwargs)
        self.kernel = kernel

    def build(self, shape):
        if self.kernel is None:
            self.kernel = self.add_weight(shape=(4, 4), name="kernel")

    def call(self, x):
        return ops.matmul(x, self.kernel)


def test_kept_weights_are_not_drawn():
    x, kept = keras.Input((4,)), Tied()
    y = kept(x)
    model = keras.Model(x, layers.Dense(2)(Tied(kept.kernel)(y)))
    before = [np.array(w) for w in model.get_weights()]
    new = rg.clone(model, keep=[kept], weights="fresh", seed=1)
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(new.get_weights()[1], before[1])


class Noise(layers.Layer):
    def __init__(self, stream, **kwargs):
        super().__init__(**kwargs)
        self.stream = stream

    def call(self, x):
        return x + keras.random.normal(ops.shape(x), seed=self.stream)


def test_a_stream_of_a_kept_layer():
    x, stream = keras.Input((4,)), keras.random.SeedGenerator(5)
    kept = Noise(stream)
    model = keras.Model(x, Noise(stream, name="other")(kept(x)))
    before = numbers(stream.state).copy()
    new = rg.clone(model, keep=[kept], seed=3)
    assert new.get_layer("other").stream is stream
    np.testing.assert_array_equal(numbers(stream.state), before)
