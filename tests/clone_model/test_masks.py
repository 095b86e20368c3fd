"""Masks in a model that is called anew."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from regraft import clone_model

from .networks import STEPS, TOKENS, again, assert_same_network, call, nodes, numbers


class Evens(layers.Layer):
    """Two outputs, the first of which alone has a mask."""

    supports_masking = True

    def call(self, x):
        return x, 2.0 * x

    def compute_mask(self, x, mask=None):
        return mask, None


def masked(name):
    if name == "embedding":
        x = keras.Input((3,), dtype="int32")
        return keras.Model(x, layers.LSTM(2)(layers.Embedding(5, 2, mask_zero=True)(x)))
    x = keras.Input((3, 2))
    y = layers.Masking()(x)
    if name == "chain":
        y = layers.Dropout(0.5)(layers.BatchNormalization()(y))
        y = layers.LSTM(2)(layers.TimeDistributed(layers.Dense(3))(y))
    elif name == "bidirectional":
        y = layers.LSTM(2)(
            layers.Bidirectional(layers.GRU(2, return_sequences=True))(y)
        )
    elif name == "two outputs":
        y = [layers.LSTM(2)(part) for part in Evens()(y)]
    elif name == "explicit":
        keep = layers.Lambda(lambda t: t[..., 0] > 2.0)(x)
        y = layers.LSTM(2)(y, mask=keep)
    elif name == "nested":
        z = keras.Input((3, 2))
        y = layers.LSTM(2)(keras.Model(z, layers.Masking()(z))(x))
    elif name == "initial state":
        state = layers.Dense(2)(layers.Flatten()(x))
        y = layers.LSTM(2)(y, initial_state=[state, state])
    elif name == "attention":
        y = layers.MultiHeadAttention(2, 2)(y, x)
    return keras.Model(x, y)


MASKED = [
    "embedding",
    "chain",
    "bidirectional",
    "two outputs",
    "explicit",
    "nested",
    "initial state",
    "attention",
]


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize(
    "arguments",
    [{"clone_function": again}, {"call_function": call, "recursive": True}],
    ids=["clone", "call"],
)
def test_masks_flow(name, arguments):
    model = masked(name)
    x = TOKENS if name == "embedding" else STEPS
    if name == "explicit" and "clone_function" in arguments:
        arguments = {"clone_function": lambda layer: layer_or_again(layer)}
    new = clone_model(model, **arguments)
    new = clone_model(new, **arguments)  # A clone of a clone.
    assert_same_network(model, new, x)
    ours = sorted(op.name for op in new.operations)
    assert ours == sorted(op.name for op in model.operations)
    mine = {
        id(t) for node in nodes(model) for t in [*node.input_tensors, *node.outputs]
    }
    for node in nodes(new):
        assert not any(id(t) in mine for t in node.input_tensors)


def layer_or_again(layer):
    return layer if isinstance(layer, layers.Lambda) else again(layer)


def test_a_layer_that_makes_no_mask_leaves_none():
    def unmasked(layer):
        if isinstance(layer, layers.Embedding):
            return layers.Embedding(5, 2)
        return again(layer)

    new = clone_model(masked("embedding"), clone_function=unmasked)
    assert [op.name.rstrip("_0123456789") for op in new.operations] == [
        "input_layer",
        "embedding",
        "lstm",
    ]
    new.layers[1].set_weights([np.ones((5, 2))])
    ours, other = numbers(new(TOKENS))[0], numbers(new(np.ones((2, 3))))[0]
    np.testing.assert_array_equal(ours, other)


def test_names_of_another_program_do_not_collide():
    x = keras.Input((3,), dtype="int32")
    y = layers.Embedding(5, 2, name="embedding")(x)
    flags = ops.cast(ops.not_equal(x, 3), "float32")
    y = layers.LSTM(2, name="lstm")(y)
    model = keras.Model(x, y + ops.sum(flags, axis=1, keepdims=True))
    taken = next(op for op in model.operations if op.name.startswith("not_equal"))
    number = int(taken.name.rpartition("_")[2]) if "_" in taken.name[9:] else 0
    taken.name = f"not_equal_{number + 1}"  # As if read from a file.

    def masking(layer):
        if isinstance(layer, layers.Embedding):
            return layers.Embedding(5, 2, mask_zero=True, name="embedding")
        return again(layer)

    new = clone_model(model, clone_function=masking)
    names = [op.name for op in new.operations if op.name.startswith("not_equal")]
    assert len(set(names)) == 2
    assert taken.name in names
