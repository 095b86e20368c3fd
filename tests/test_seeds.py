"""Where the random numbers of a copy come from, and what a seed reaches."""

import random
import threading

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

BACKEND = keras.backend.backend()


class FromNumpy(keras.initializers.Initializer):
    """Draws from a generator of its own."""

    def __init__(self, generator):
        self.generator = generator

    def __call__(self, shape, dtype=None):
        return ops.convert_to_tensor(self.generator.normal(size=shape), dtype)


def from_python():
    generator = random.Random(3)

    def draw(shape, dtype=None):
        numbers = [generator.gauss(0, 1) for _ in range(np.prod(shape))]
        return ops.convert_to_tensor(np.reshape(numbers, shape), dtype)

    return draw


def from_torch():
    import torch

    generator = torch.Generator().manual_seed(3)
    return lambda shape, dtype=None: torch.randn(*shape, generator=generator)


def from_tensorflow():
    import tensorflow as tf

    generator = tf.random.Generator.from_seed(3)
    return lambda shape, dtype=None: generator.normal(shape)


MAKERS = {
    "np.random.Generator": lambda: FromNumpy(np.random.default_rng(3)),
    "np.random.RandomState": lambda: FromNumpy(np.random.RandomState(3)),
    "random.Random": from_python,
    "torch.Generator": from_torch,
    "tf.random.Generator": from_tensorflow,
}


def kernels(model):
    return [ops.convert_to_numpy(layer.kernel) for layer in model.layers]


@pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
def test_generators_that_initializers_hold(make):
    wanted = {from_torch: "torch", from_tensorflow: "tensorflow"}.get(make, BACKEND)
    if wanted != BACKEND:
        pytest.skip("a generator of another framework")

    def build(initializer):
        dense = [layers.Dense(3, kernel_initializer=initializer) for _ in "ab"]
        return keras.Sequential([keras.Input((3,)), *dense])

    initializer = make()
    model = build(initializer)
    fresh = kernels(rg.clone(model, weights="fresh"))
    # They draw after each other from one generator, which goes on.
    assert not np.array_equal(*fresh)
    assert all(map(np.array_equal, fresh, kernels(rg.clone(model, weights="fresh"))))
    one, same, other = (
        kernels(rg.clone(model, weights="fresh", seed=seed)) for seed in (1, 1, 2)
    )
    assert all(map(np.array_equal, one, same))
    assert not np.array_equal(*one)
    assert not any(map(np.array_equal, one, other))
    # That of the original has not moved.
    assert all(map(np.array_equal, fresh, kernels(build(initializer))))


class Counts(keras.initializers.Initializer):
    """Starts each weight with another number."""

    def __init__(self):
        self.calls = 0

    def __call__(self, shape, dtype=None):
        self.calls += 1
        return ops.full(shape, self.calls, dtype)


def test_an_initializer_that_counts_its_calls():
    initializer = Counts()
    dense = [layers.Dense(1, kernel_initializer=initializer) for _ in "ab"]
    model = keras.Sequential([keras.Input((1,)), *dense])
    first, second = kernels(rg.clone(model, weights="fresh"))
    assert float(second[0, 0]) == float(first[0, 0]) + 1
    assert initializer.calls == 2


class Jitter(layers.Layer):
    """Adds noise from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.generator = np.random.default_rng(5)

    def call(self, x):
        return x + float(self.generator.normal())


def test_a_seed_reaches_the_generators_of_layers():
    model = keras.Sequential([Jitter()])
    x = np.zeros((1, 2), "float32")
    copies = [rg.clone(model, seed=seed) for seed in (None, 1, 1, 2)]
    expected, plain, one, same, other = (
        ops.convert_to_numpy(m(x)) for m in (model, *copies)
    )
    np.testing.assert_array_equal(plain, expected)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, plain)
    assert not np.array_equal(one, other)
    shared = rg.clone(model, seed=1, keep=np.random.Generator)
    assert shared.layers[0].generator is model.layers[0].generator


class WritesItsSeeds(layers.Layer):
    """Makes initializers and streams, with fixed seeds, when it is built."""

    def build(self, shape):
        stream = keras.random.SeedGenerator(5)
        for name, initializer in {
            "initializer": keras.initializers.RandomNormal(seed=3),
            "seed": lambda s, dtype=None: keras.random.normal(s, dtype=dtype, seed=3),
            "stream": lambda s, dtype=None: keras.random.normal(s, seed=stream),
            "again": lambda s, dtype=None: keras.random.normal(s, seed=stream),
        }.items():
            self.add_weight(shape=(4,), initializer=initializer, name=name)

    def call(self, x):
        return x


def test_seeds_that_are_written_in_a_build():
    model = keras.Sequential([keras.Input((2,)), WritesItsSeeds()])

    def draw(seed):
        return rg.clone(model, weights="fresh", seed=seed).get_weights()

    assert all(map(np.array_equal, draw(None), model.get_weights()))
    one, same, other = draw(1), draw(1), draw(2)
    assert all(map(np.array_equal, one, same))
    assert not any(map(np.array_equal, one, other))
    assert not any(map(np.array_equal, one, draw(None)))
    assert not np.array_equal(*one[2:])
    # What others draw is as it was.
    assert all(map(np.array_equal, draw(None), model.get_weights()))


def test_threads_that_draw_meanwhile_draw_with_their_own_seeds():
    expected = ops.convert_to_numpy(keras.random.normal((2,), seed=3))
    found = []

    class Slow(layers.Layer):
        def build(self, shape):
            def work():
                found.append(ops.convert_to_numpy(keras.random.normal((2,), seed=3)))

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            self.w = self.add_weight(shape=(2,), name="w")

        def call(self, x):
            return x

    model = keras.Sequential([keras.Input((2,)), Slow()])
    found.clear()
    rg.clone(model, weights="fresh", seed=1)
    assert found
    for numbers in found:
        np.testing.assert_array_equal(numbers, expected)


class Noisy(layers.Layer):
    """Says nothing of its configuration by itself."""

    def __init__(self, seed=None):
        super().__init__()
        self.stream = keras.random.SeedGenerator(seed)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.stream)


def test_layers_say_the_seeds_of_their_streams():
    model = keras.Sequential(
        [
            keras.Input((6, 4)),
            layers.Dropout(0.5, seed=5),
            layers.Dropout(0.5),
            Noisy(7),
            layers.LSTM(3, dropout=0.5, seed=9),
        ]
    )
    for weights in ("copy", "fresh"):
        new = rg.clone(model, weights=weights, seed=1)
        fixed, free, noisy, lstm = new.layers
        seed = fixed.seed_generator._initial_seed
        assert seed not in (5, None)
        assert fixed.seed == fixed.get_config()["seed"] == seed
        assert free.seed is None
        assert noisy.get_config()["seed"] == noisy.stream._initial_seed != 7
        stream = lstm.cell.seed_generator
        assert lstm.get_config()["seed"] == stream._initial_seed != 9
    assert model.layers[0].get_config()["seed"] == 5
    assert model.layers[3].get_config()["seed"] == 9
    assert rg.clone(model, weights="fresh").layers[0].seed == 5
