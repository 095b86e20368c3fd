"""`keep=`: what a kept layer consists of is shared, however it is reached."""

import functools
import operator
from collections import deque

import keras
import numpy as np
import pytest
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


# --- what it may name --------------------------------------------------------


def network():
    return keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(2)])


def test_a_function_of_the_model_is_an_object():
    model, asked = network(), []
    model.note = lambda x: asked.append(x) or True
    new = rg.clone(model, keep=[model.note])
    assert new is not model
    assert new.note is model.note
    assert new.layers[0] is not model.layers[0]
    assert asked == []


def test_every_way_to_name_a_layer():
    model = network()
    first = model.layers[0]

    class Asking:
        def is_first(self, obj):
            return obj is first

    for keep in (
        first,
        [first],
        iter([first]),
        (layer for layer in [first]),
        {"a": first}.values(),
        {first: 1}.keys(),
        deque([first]),
        lambda obj: obj is first,
        Asking().is_first,
        functools.partial(operator.is_, first),
    ):
        new = rg.clone(model, keep=keep)
        assert [a is b for a, b in zip(new.layers, model.layers, strict=True)] == [
            True,
            False,
        ], keep
    drawn = rg.clone(model, keep=iter([first]), weights="fresh", device="cpu")
    assert drawn.layers[0] is first
    assert rg.clone(model, keep=None).layers[0] is not first


def test_the_model_itself_is_always_copied():
    model = network()
    for keep in (keras.Model, layers.Layer, model, lambda obj: True):
        new = rg.clone(model, keep=keep)
        assert new is not model
        assert new.name == model.name
    assert rg.clone(model, keep=model).layers[0] is not model.layers[0]
    assert rg.clone(model, keep=layers.Dense).layers[0] is model.layers[0]


@pytest.mark.parametrize("name", ["dense", 3, b"dense"])
def test_names_are_refused(name):
    with pytest.raises(TypeError) as error:
        rg.clone(network(), keep=[name])
    text = str(error.value)
    assert "`keep=` names something that both models share in any case." in text
    assert f"received: {name!r}" in text
    assert ("`model.get_layer('dense')`" in text) == (name == "dense")


def test_an_iterator_of_the_model_is_an_object():
    model = network()
    vars(model)["numbers"] = numbers_left = iter([1, 2, 3])
    new = rg.clone(model, keep=numbers_left)
    assert new.numbers is numbers_left
    assert list(numbers_left) == [1, 2, 3]
