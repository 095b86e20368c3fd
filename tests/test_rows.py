"""Batches stay batches when a model is put on other inputs."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg


def folded():
    """Folds an axis into the batch, and unfolds it with a number."""
    x = keras.Input((8, 4))
    flat = layers.Dense(3)(ops.reshape(x, (-1, 4)))
    return keras.Model(x, ops.reshape(flat, (-1, 8, 3)), name="model")


@pytest.mark.parametrize(
    ("length", "said"), [(16, "14 rows of 7"), (9, "Error: ")], ids=["mixed", "fails"]
)
def test_a_batch_does_not_swallow_a_change_between_two_reshapes(length, said):
    with pytest.raises(rg.ShapeError, match="fails or mixes its rows") as caught:
        rg.clone(folded(), inputs=(length, 4))
    assert "where: model" in str(caught.value)
    assert said in str(caught.value)
    assert "take it from `ops.shape(x)`" in str(caught.value)


def test_rows_may_be_folded():
    x = keras.Input((8, 4))
    flat = keras.Model(x, layers.Dense(3)(ops.reshape(x, (-1, 4))))
    new = rg.clone(flat, inputs=(16, 4))
    assert new(np.ones((2, 16, 4), "float32")).shape == (32, 3)


class Doubled(layers.Layer):
    def call(self, x):
        return x * 2


def doubled(**batch):
    x = keras.Input(**batch)
    return keras.Model(x, Doubled()(x))


def test_a_batch_size_is_fixed_and_opened_again():
    fixed = rg.clone(doubled(shape=(6, 4)), inputs=keras.Input(batch_shape=(4, 5, 4)))
    assert fixed.output_shape == (4, 5, 4)
    assert rg.clone(fixed, inputs=keras.Input((3, 4))).output_shape == (None, 3, 4)
