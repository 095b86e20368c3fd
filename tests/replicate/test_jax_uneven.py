"""What XLA does with batches that the devices do not divide: 7 rows over 3 devices."""

import re

import keras
import numpy as np
import pytest
from keras import layers

import regraft

from .models import BUILDERS, TABLE, TOKENS, VALUES, compiled
from .test_training import FLOAT32, assert_close, numbers

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX")

ROWS = 7


@pytest.fixture
def uneven(monkeypatch):
    """For every uneven batch, the rows on each device and the program."""
    from regraft._backends.engines.jax import uneven

    found = []
    takes = uneven.Program.takes

    def noting(program, state, data):
        if not takes(program, state, data):
            return False
        shards = keras.tree.flatten(data)[0].filled.addressable_shards
        rows = [shard.data.shape[0] for shard in shards]
        found.append((rows, program._trace(state, data)))
        return True

    monkeypatch.setattr(uneven.Program, "takes", noting)
    return found


def both(model):
    return regraft.clone(model), regraft.replicate(model, 3)


def test_no_device_computes_more_than_three_of_seven_rows(uneven):
    _, many = both(BUILDERS["sequential"][0]())
    many.train_on_batch(TABLE[:ROWS], VALUES[:ROWS])
    [(rows, program)] = uneven
    assert rows == [3, 3, 3]  # 3, 3 and 1, and two that are cut off again.
    text = program.lower().compile().as_text()
    # All that is computed has three rows or none, forward and backward.
    assert re.search(r" = f32\[3,6\]\S* dot\(", text)
    assert not re.search(r"\w\d+\[[79],", text)
    # The two are cut off where they lie, and left out of sums: seven rows count.
    assert "collective-permute" not in text
    assert "all-gather" not in text
    assert re.search(r"s32\[\] constant\(7\)", text)


def masked_statistics():
    x = keras.Input((7,), dtype="int32")
    h = layers.Embedding(9, 4, mask_zero=True)(x)
    h = layers.BatchNormalization(momentum=0.5)(h)
    y = layers.Dense(2)(layers.GlobalAveragePooling1D()(h))
    return compiled(keras.Model(x, y))


def test_the_numbers_are_those_of_one_device(uneven):
    one, many = both(masked_statistics())
    x, y, weights = TOKENS[:ROWS], VALUES[:ROWS], np.linspace(0, 2, ROWS)
    for _ in range(2):
        mine, other = (
            m.train_on_batch(x, y, sample_weight=weights, return_dict=True)
            for m in (one, many)
        )
        assert_close(mine, other)
    assert_close(numbers(one), numbers(regraft.gather(many)))
    mine, other = (m.predict(x, verbose=0) for m in (one, many))
    assert other.shape == mine.shape
    np.testing.assert_allclose(mine, other, **FLOAT32)
    assert [rows for rows, _ in uneven] == [[3, 3, 3]] * 3


@pytest.mark.parametrize(("count", "found"), [(2, [[1, 1, 1]]), (1, []), (6, [])])
def test_fewer_rows_than_devices_one_row_and_rows_that_divide(count, found, uneven):
    one, many = both(BUILDERS["sequential"][0]())
    mine, other = (m.predict(TABLE[:count], verbose=0) for m in (one, many))
    np.testing.assert_allclose(mine, other, **FLOAT32)
    assert [rows for rows, _ in uneven] == found


class Infinite(layers.Layer):
    """Gives for a row of zeros, with which XLA fills up, what no sum can bear."""

    def call(self, x):
        return keras.ops.log(x) + keras.ops.max(1 / x, axis=0) - keras.ops.min(x)


class Sorted(layers.Layer):
    """Has a gradient that would end the process, if XLA had to split it unevenly."""

    def call(self, x):
        return keras.ops.sort(x, axis=-1)


@pytest.mark.parametrize(("layer", "is_split"), [(Infinite, True), (Sorted, False)])
def test_layers_that_are_hard_to_split(layer, is_split, uneven):
    x = keras.Input((5,))
    model = keras.Model(x, layers.Dense(2)(layer()(layers.Dense(3, "softplus")(x))))
    model.compile("sgd", "mse")
    one, many = both(model)
    mine, other = (m.train_on_batch(TABLE[:ROWS], VALUES[:ROWS]) for m in (one, many))
    assert np.isfinite(mine)
    np.testing.assert_allclose(mine, other, **FLOAT32)
    assert_close(numbers(one), numbers(regraft.gather(many)))
    assert bool(uneven) == is_split


def test_a_step_that_is_not_compiled_is_not_split(uneven):
    model = BUILDERS["sequential"][0]()
    model.run_eagerly = True
    one, many = both(model)
    mine, other = (m.predict(TABLE[:ROWS], verbose=0) for m in (one, many))
    np.testing.assert_allclose(mine, other, **FLOAT32)
    assert not uneven
