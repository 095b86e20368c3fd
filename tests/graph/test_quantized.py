"""Edits of models whose layers hold whole numbers, with scales."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers

import regraft as rg

from .checks import bits, untouched, values


class Block(layers.Layer):
    """Makes the layers inside it when it is built, without saying their names."""

    def build(self, shape):
        self.wide = layers.Dense(6)
        self.wide.build(shape)
        self.narrow = layers.Dense(shape[-1])
        self.narrow.build((*shape[:-1], 6))

    def call(self, x):
        return self.narrow(self.wide(x))


def attention():
    x = keras.Input((6, 8), name="x")
    h = layers.Dense(8, name="first")(x)
    return keras.Model(x, layers.MultiHeadAttention(2, 4, name="last")(h, x))


def block():
    return keras.Sequential(
        [keras.Input((6, 8)), layers.Dense(8, name="first"), Block(name="last")]
    )


def dense():
    return keras.Sequential(
        [
            keras.Input((6, 8)),
            layers.Dense(8, name="first"),
            layers.TimeDistributed(layers.Dense(4), name="last"),
        ]
    )


MODELS = {"attention": attention, "block": block, "dense": dense}


def quantized(make, mode):
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Inputs cannot be quantized.
        model.quantize(mode)
    return model


def modes(model):
    found = {layer.path: layer.quantization_mode for layer in model._flatten_layers()}
    return {path: mode for path, mode in found.items() if mode is not None}


@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_what_changes_no_shape_changes_no_number(make, mode):
    model = quantized(make, mode)
    assert modes(model)
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    graph, between = rg.graph(model), layers.Identity()
    with untouched(model, between, counters=False):  # `inputs` counts tensors.
        edited = [
            graph.set("last", trainable=False).build(),
            graph.inputs((None, 8)).build(),
            graph.insert(between, after="first").build(),
        ]
    for new in edited:
        assert values(new) == values(model)
        assert modes(new) == modes(model)
        assert bits(new(x)) == bits(model(x))


@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_numbers_of_other_shapes_are_refused(make, mode):
    model = quantized(make, mode)
    edited = rg.graph(model).replace("first", layers.Dense(10))
    for mismatch in ("error", "fit", "fresh"):
        with untouched(model), pytest.raises(rg.MismatchError) as error:
            edited.build(mismatch=mismatch)
        text = str(error.value)
        assert "variable(s) of quantized layers do not fit any more." in text
        assert "kernel" in text
        assert "edit the model before it is quantized" in text


def test_a_function_may_know_what_becomes_of_the_numbers():
    model = quantized(attention, "int4")
    old = {v.path: tuple(v.shape) for v in model.variables}
    met = {}

    def choose(path, before, drawn):
        met[path] = before.shape, drawn.dtype.name
        return drawn

    new = rg.graph(model).replace("first", layers.Dense(10)).build(mismatch=choose)
    assert met["last/query/kernel"] == (old["last/query/kernel"], "int8")
    assert "last/key/kernel" not in met  # It is given what it was given before.
    of_attention = {k: v for k, v in modes(model).items() if k.startswith("last")}
    assert modes(new) == of_attention


def test_numbers_are_not_taken_over_without_their_scale():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4, name="d")])
    model.quantize("int8")
    edited = rg.graph(model).replace("d", layers.Dense(4), transfer=True)
    with pytest.raises(rg.MismatchError) as error:
        edited.build()
    assert "d/kernel (8, 4) int8 -> (8, 4) float32" in str(error.value)


def test_a_quantized_sequential_takes_other_layers():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4, name="d")])
    model.quantize("int8")
    new = rg.graph(model).append(layers.Dense(2, name="e")).build()
    assert [layer.name for layer in new.layers] == ["d", "e"]
    assert new.get_layer("d").quantization_mode == "int8"
    assert new.output_shape == (None, 2)
