"""Functions on a model, rebuilt over the copies of what they carry."""

import functools

import keras
import numpy as np
import pytest
from keras import layers

import regraft

BACKEND = keras.backend.backend()


class Holder(layers.Layer):
    """A layer that holds on to anything."""

    def __init__(self, value=None, **kwargs):
        super().__init__(**kwargs)
        self.value = value

    def call(self, x):
        return x


def test_functions_over_parts_of_the_model_are_rebuilt_over_the_copies():
    dense = layers.Dense(4, name="tied")
    dense.build((None, 4))

    def closure(x):
        return x + dense(x)

    def default(x, layer=dense):
        return layer(x)

    def apply(layer, x):
        return layer(x)

    model = keras.Sequential([keras.Input((4,)), dense])
    model.functions = [closure, default, functools.partial(apply, dense), dense.call]
    copy = regraft.clone(model)
    copy.layers[0].kernel.assign(keras.ops.zeros((4, 4)))
    copy.layers[0].bias.assign(keras.ops.ones((4,)))
    x = keras.ops.ones((1, 4))
    answers = [keras.ops.convert_to_numpy(f(x)) for f in copy.functions]
    np.testing.assert_array_equal(answers[0], np.full((1, 4), 2.0))
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, np.ones((1, 4)))


@functools.lru_cache(maxsize=2)
def cached_by_a_module(x):
    return x


def test_functions_with_a_cache_are_rebuilt_over_the_copies():
    dense = layers.Dense(3)
    dense.build((None, 2))
    layer = Holder({"dense": dense, "module": cached_by_a_module})
    size = functools.lru_cache(maxsize=4, typed=True)(lambda n: n * dense.units)
    size.notes = ["kept"]
    layer.size = size
    layer.count = functools.cache(dense.count_params)
    layer.static = staticmethod(lambda: dense)
    assert layer.size(2) == 6
    copy = regraft.clone(layer)
    assert list(regraft.diff(layer, copy)) == []
    new = copy.value["dense"]
    new.units = 5
    assert copy.size(2) == 10
    assert layer.size(2) == 6
    assert copy.size.cache_parameters() == {"maxsize": 4, "typed": True}
    assert copy.size.notes == ["kept"]
    assert copy.size.notes is not size.notes
    assert copy.count.__wrapped__.__self__ is new
    assert copy.static.__func__() is new
    assert copy.value["module"] is cached_by_a_module
    copy = regraft.clone(layer)
    copy.size = functools.lru_cache(maxsize=5)(copy.size.__wrapped__)
    whys = {d.path.rpartition(".")[2] for d in regraft.diff(layer, copy)}
    assert "cache_parameters()['maxsize']" in whys


@pytest.mark.skipif(BACKEND == "torch", reason="torch compiles no functions here")
def test_a_compiled_partial_over_a_layer_is_rebuilt_over_the_copy():
    def scaled(layer, x, scale=2.0):
        return layer(x) * scale

    layer = Holder(layers.Dense(2, use_bias=False))
    layer.value.build((None, 4))
    partial = functools.partial(scaled, layer.value)
    if BACKEND == "jax":
        import jax

        layer.function = jax.jit(partial, static_argnames=("scale",))
    else:
        import tensorflow as tf

        layer.function = tf.function(partial)
    copy = regraft.clone(layer)
    x = np.ones((1, 4), "float32")
    outputs = [np.asarray(f(x, scale=3.0)) for f in (layer.function, copy.function)]
    np.testing.assert_array_equal(*outputs)
    copy.value.kernel.assign(np.zeros((4, 2)))
    assert not np.asarray(copy.function(x)).any()
    assert list(regraft.diff(layer, regraft.clone(layer))) == []


@pytest.mark.skipif(BACKEND != "jax", reason="flax is JAX's")
def test_a_frozen_dict_keeps_its_items():
    from flax.core import freeze

    layer = Holder(freeze({"a": {"b": np.ones(2)}, "c": [1]}))
    copy = regraft.clone(layer)
    assert list(copy.value) == ["a", "c"]
    assert copy.value["a"]["b"] is not layer.value["a"]["b"]
    assert list(regraft.diff(layer, copy)) == []


def test_a_function_without_state_keeps_its_identity():
    def double(x):
        return x * 2

    model = keras.Sequential([keras.Input((4,)), layers.Dense(4, activation=double)])
    copy = regraft.clone(model)
    assert copy.layers[0].activation is double


def test_state_behind_nonlocal_is_copied():
    def counter():
        count = 0

        def increase(x):
            nonlocal count
            count += 1
            return count

        return increase

    layer = Holder(counter())
    layer.value(None)
    copy = regraft.clone(layer)
    assert (copy.value(None), copy.value(None)) == (2, 3)
    assert layer.value(None) == 2


def test_state_on_a_function_is_copied():
    def counted(function):
        @functools.wraps(function)
        def wrapper(x):
            wrapper.calls += 1
            return function(x)

        wrapper.calls = 0
        return wrapper

    layer = Holder(counted(lambda x: x))
    copy = regraft.clone(layer)
    copy.value(1)
    assert (layer.value.calls, copy.value.calls) == (0, 1)
    assert list(regraft.diff(layer, copy))


def test_a_method_of_the_class_stays_a_method_of_the_class():
    log = []

    class Noting(layers.Layer):
        def __init__(self):
            super().__init__()
            self.callback, self.counter = self.note, self.count

        def note(self, x):
            log.append(x)

        @classmethod
        def count(cls):
            return len(log)

        def build(self, shape):
            log.append(shape)

    layer = Noting()
    copy = regraft.clone(layer)
    assert copy.callback.__func__ is Noting.note
    assert copy.callback.__self__ is copy
    copy.callback(1)
    assert layer.counter() == copy.counter() == 1
    assert regraft.verify(layer, copy).same


def test_a_function_that_wraps_a_layer_and_has_its_attributes():
    layer = layers.Dense(4)

    @functools.wraps(layer)  # As `keras.remat` and `jax.jit` do.
    def call(x):
        return layer(x)

    x = keras.Input((4,))
    model = keras.Model(x, layers.Lambda(call)(x))
    twin = regraft.clone(model)
    function = twin.layers[1].function
    assert function.build is function.__wrapped__.build
    assert function.__wrapped__ is not layer
    assert regraft.verify(model, twin).same
