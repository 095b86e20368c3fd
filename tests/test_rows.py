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
    ("length", "said"), [(16, "62 rows of 31"), (9, "Error: ")], ids=["mixed", "fails"]
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


# --- what only looks as if rows were mixed -------------------------------------


class Sum(layers.Layer):
    def call(self, a, b):
        return a * 2 + b


class Flat(layers.Layer):
    def call(self, x):
        return ops.reshape(x, (-1, x.shape[-1]))


def beside_a_table(flip):
    x, table = keras.Input((8, 4), name="x"), keras.Input(batch_shape=(1, 4))
    return keras.Model([table, x], Sum()(*((table, x) if flip else (x, table))))


@pytest.mark.parametrize("flip", [False, True])
def test_an_input_that_is_no_batch(flip):
    new = rg.clone(beside_a_table(flip), inputs={"x": (16, 4)})
    assert new.output_shape == (None, 16, 4)


@pytest.mark.parametrize("fold", [Flat(), lambda x: ops.reshape(x, (-1, 4))])
def test_positions_of_an_open_length_become_rows(fold):
    x = keras.Input((None, 4))
    new = rg.clone(keras.Model(x, layers.Dense(3)(fold(x))), inputs=(16, 4))
    assert new(np.ones((2, 16, 4), "float32")).shape == (32, 3)


@pytest.mark.parametrize("length", [7, 8])
def test_time_before_rows(length):
    x = keras.Input((length, 4))
    model = keras.Model(x, Doubled()(ops.transpose(x, (1, 0, 2))))
    assert rg.clone(model, inputs=(16, 4)).output_shape == (16, None, 4)


# --- edits ---------------------------------------------------------------------


def test_an_edited_model_does_not_mix_rows():
    graph = rg.graph(folded()).inputs((16, 4))
    with pytest.raises(rg.ShapeError, match="mixes its rows"):
        graph.build()


def test_what_the_next_verb_mends_is_no_fault():
    x = keras.Input((16, 16, 3))
    y = layers.Reshape((-1, 8))(layers.Conv2D(8, 2, 2)(x))
    model = keras.Model(x, layers.Reshape((8, 8, -1), name="shape")(y))
    graph = rg.graph(model).inputs((32, 32, 3))
    with pytest.raises(rg.ShapeError, match=r"where: .*/shape"):
        graph.build()
    new = graph.replace("shape", layers.Reshape((16, 16, 8))).build()
    assert new.output_shape == (None, 16, 16, 8)


@pytest.mark.parametrize("length", [1, 9])
def test_inputs_that_must_be_alike_are_changed_together(length):
    a, b = keras.Input((8, 4)), keras.Input((8, 4))
    model = keras.Model([a, b], layers.Add()([a, b]))
    new = rg.graph(model).inputs((length, 4), (length, 4)).build()
    assert new.output_shape == (None, length, 4)


class RowsLater(layers.Layer):
    def call(self, x):
        return ops.transpose(x, (1, 0, 2, 3))


def test_a_map_before_rows():
    x = keras.Input((14, 14, 3))
    model = keras.Model(x, RowsLater()(layers.Conv2D(4, 2, 2)(x)))
    assert rg.clone(model, inputs=(28, 28, 3)).output_shape == (14, None, 14, 4)
