"""Calls that the TensorFlow engine cannot split are made whole, on every device."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft

from .models import TABLE, VALUES, compiled, floats
from .test_training import assert_close, numbers

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the engine of TensorFlow"
)
SEQUENCES = floats(7, 2)


class Adding(layers.Layer):
    def call(self, x):
        self.add_loss(ops.sum(ops.square(x)))
        return x


class Counting(layers.Layer):
    def build(self, shape):
        self.total = self.add_weight(name="total", trainable=False, initializer="zeros")

    def call(self, x):
        self.total.assign_add(ops.sum(x))
        return x


SCALE = keras.Variable(2.0, name="scale")


class Scaling(layers.Layer):
    """Reads a variable that it does not hold."""

    def call(self, x):
        return x * SCALE


class Guided(keras.Model):
    """Is called with a tensor that is not among its inputs."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x, offset=None):
        x = self.dense(x)
        return x if offset is None else x + offset

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        return super().compute_loss(x, y, self(x, offset=ops.ones((2,))))


def guided():
    model = Guided()
    model(TABLE)
    return compiled(model, metrics=())


def table_and_one_row():
    a, b = keras.Input((5,)), keras.Input((4,), batch_size=1)
    return compiled(keras.Model([a, b], layers.Dense(2)(layers.Dense(4)(a) + b)))


def similarities():
    x = keras.Input((5,))
    h = layers.Dense(3)(x)
    return compiled(keras.Model(x, ops.matmul(h, ops.transpose(h))), metrics=())


def sparse_inputs():
    x = keras.Input((5,), sparse=True)
    return compiled(keras.Model(x, layers.Dense(2)(x)))


def sparse_table():
    import tensorflow as tf

    return tf.sparse.from_dense(TABLE)


def with_layer(layer):
    x = keras.Input((5,))
    return compiled(keras.Model(x, layers.Dense(2)(layer(layers.Dense(4)(x)))))


def stateful_rnn():
    x = keras.Input((7, 2), batch_size=6)
    model = keras.Model(x, layers.Dense(2)(layers.LSTM(3, stateful=True)(x)))
    return compiled(model)


@pytest.mark.parametrize(
    ("build", "x", "reason"),
    [
        (lambda: with_layer(Adding()), TABLE, "layers add losses while"),
        (lambda: with_layer(Counting()), TABLE, "the call changes variables: coun"),
        (
            lambda: with_layer(layers.Dense(4, activity_regularizer="l2")),
            TABLE,
            "layers add losses while they are called",
        ),
        (lambda: with_layer(Scaling()), TABLE, "variables that are not of the model"),
        (guided, TABLE, "it is called with tensors besides its inputs"),
        (sparse_inputs, sparse_table, "an input is not a dense tensor with rows"),
        (stateful_rnn, SEQUENCES, "an output does not have the rows of the inputs"),
    ],
)
def test_a_call_that_cannot_be_split_is_not(build, x, reason):
    model = build()
    x = x() if callable(x) else x
    one, many = regraft.clone(model), regraft.replicate(model, 2)
    mine = one.fit(x, VALUES, batch_size=6, shuffle=False, verbose=0).history
    with pytest.warns(regraft.UnsplitBatchWarning) as caught:
        other = many.fit(x, VALUES, batch_size=6, shuffle=False, verbose=0).history
    assert any(reason in str(warning.message) for warning in caught)
    assert "every device computes all of each batch" in str(caught[0].message)
    assert_close(mine, other)
    assert_close(numbers(one), numbers(regraft.gather(many)))


def words():
    x = keras.Input((1,), dtype="int64")
    lookup = layers.StringLookup(vocabulary=["a", "b"], invert=True)
    return keras.Model(x, lookup(x))


@pytest.mark.parametrize(
    ("build", "x", "reason"),
    [
        (similarities, TABLE, "the size of an output depends on the number of rows"),
        (
            table_and_one_row,
            [TABLE, np.ones((1, 4), "float32")],
            "inputs have different numbers of rows",
        ),
        (words, np.array([[1], [2]]), "an output has strings, which replicas cannot"),
    ],
)
def test_a_prediction_that_cannot_be_split_is_not(build, x, reason):
    model = build()
    many = regraft.replicate(model, 2)
    with pytest.warns(regraft.UnsplitBatchWarning, match=reason):
        other = many.predict_on_batch(x)
    mine = model.predict_on_batch(x)
    if mine.dtype == object:
        assert (mine == other).all()
    else:
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_inputs_whose_rows_differ_at_last_end_the_step():
    import tensorflow as tf

    a, b = keras.Input((5,)), keras.Input((4,))
    model = keras.Model([a, b], layers.Dense(2)(layers.Dense(4)(a) + b))
    many = regraft.replicate(model, 2)

    @tf.function
    def call(a, b):
        return many.distribute_strategy.run(lambda: many([a, b]))

    run = call.get_concrete_function(tf.TensorSpec((None, 5)), tf.TensorSpec((None, 4)))
    assert run(tf.ones((3, 5)), tf.ones((3, 4))).shape == (3, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="different numbers of"):
        run(tf.ones((4, 5)), tf.ones((1, 4)))
