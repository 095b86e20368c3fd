"""Calls that compute something else, or nothing, on another input shape."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

CAUSAL = np.tril(np.ones((8, 8), "bool"))


def with_positions(x):
    return x + np.ones((8, 4), "float32")


def with_numbers(x):
    return x * ops.cast(ops.arange(8), "float32")[:, None]


def with_mask(x):
    scores = ops.matmul(x, ops.transpose(x, (0, 2, 1)))
    return ops.where(CAUSAL, scores, -1e9)


def model_of(function):
    x = keras.Input((8, 4))
    return keras.Model(x, function(x), name="model")


def by_clone(model, shape):
    return rg.clone(model, inputs=shape)


def by_graph(model, shape):
    return rg.graph(model).inputs(shape).build()


@pytest.mark.parametrize("function", [with_positions, with_numbers, with_mask])
@pytest.mark.parametrize("put_on", [by_clone, by_graph])
def test_one_step_is_not_repeated_along_a_constant(function, put_on):
    with pytest.raises(rg.ShapeError, match="one tensor would be repeated"):
        put_on(model_of(function), (1, 4))


@pytest.mark.parametrize("put_on", [by_clone, by_graph])
def test_what_was_repeated_is_repeated(put_on):
    model = model_of(lambda x: x * np.ones((1, 4), "float32") + 3.0)
    assert put_on(model, (1, 4)).output_shape == (None, 1, 4)
    assert put_on(model, (9, 4)).output_shape == (None, 9, 4)


def test_a_memory_of_one_step_is_attended_to():
    x, memory = keras.Input((8, 4), name="x"), keras.Input((8, 4), name="memory")
    model = keras.Model([x, memory], layers.MultiHeadAttention(2, 2)(x, memory))
    new = rg.clone(model, inputs={"memory": (1, 4)})
    assert new.output_shape == (None, 8, 4)


def test_a_constant_mask_does_not_fit_another_length():
    attention = layers.MultiHeadAttention(2, 2, name="attention")
    model = model_of(lambda x: attention(x, x, attention_mask=CAUSAL[None]))
    with pytest.raises(rg.ShapeError) as caught:
        rg.clone(model, inputs=(5, 4))
    assert "where: model/attention (MultiHeadAttention)" in str(caught.value)


class Positions(layers.Layer):
    """Adds as much of a table as there are steps."""

    def build(self, shape):
        self.table = self.add_weight(shape=(12, shape[-1]), name="table")

    def call(self, x):
        return x + ops.broadcast_to(self.table[: ops.shape(x)[1]], ops.shape(x))

    def compute_output_shape(self, shape):
        return shape


def test_an_open_length_is_closed_at_what_a_table_holds():
    x = keras.Input((None, 4))
    model = keras.Model(x, Positions(name="positions")(x), name="model")
    assert rg.clone(model, inputs=(12, 4)).output_shape == (None, 12, 4)
    with pytest.raises(rg.ShapeError) as caught:
        rg.clone(model, inputs=(20, 4))
    assert "where: model/positions (Positions)" in str(caught.value)


class Nest(layers.Layer):
    """Holds a model that was made without an input shape."""

    def __init__(self):
        super().__init__(name="nest")
        self.inner = keras.Sequential([layers.Dense(5), layers.Dense(4)])

    def call(self, x):
        return self.inner(x)


@pytest.mark.parametrize("length", [9, None])
def test_a_sequential_inside_a_layer_follows(length):
    model = model_of(Nest())
    new = rg.clone(model, inputs=(length, 4))
    x = np.random.default_rng(0).random((2, 9, 4), "float32")
    nest = model.get_layer("nest")
    ours, theirs = (ops.convert_to_numpy(f(x)) for f in (new, nest))
    np.testing.assert_array_equal(ours, theirs)


def test_a_sequential_inside_a_layer_is_fitted():
    graph = rg.graph(model_of(Nest())).insert(layers.Dense(7), before="nest")
    with pytest.raises(rg.MismatchError, match=r"\(4, 5\) -> \(7, 5\)"):
        graph.build()
    assert graph.build(mismatch="fit").output_shape == (None, 8, 4)


class TiedHead(layers.Layer):
    """Reads, when it is built, the weights of another layer."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def build(self, shape):
        size = self.embedding.embeddings.shape[0]
        self.bias = self.add_weight(shape=(size,), name="bias")

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.embedding.embeddings)) + self.bias


def test_a_layer_that_reads_another_follows():
    x, embedding = keras.Input((5,), dtype="int32"), layers.Embedding(9, 4)
    model = keras.Model(x, TiedHead(embedding)(embedding(x)))
    assert rg.clone(model, inputs=(7,)).output_shape == (None, 7, 9)


def test_products_are_not_made_element_by_element():
    model = model_of(lambda x: attend(layers.Dense(8)(x)))
    assert rg.clone(model, inputs=(1, 4)).output_shape == (None, 1, 8)
    assert by_graph(model, (1, 4)).output_shape == (None, 1, 8)


def attend(x):
    """There are as many steps as features."""
    return ops.matmul(ops.matmul(x, ops.transpose(x, (0, 2, 1))), x)
