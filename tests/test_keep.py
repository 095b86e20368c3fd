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
