"""The steps of which random models are made.

Every tensor is one of four kinds, each of one shape, so that any step fits
behind any other and JAX compiles each operation once for all examples:

- `v`: a vector, `(batch, 4)`
- `s`: a sequence of vectors, `(batch, 3, 4)`
- `i`: an image, `(batch, 3, 3, 4)`
- `t`: token ids, `(batch, 3)`, padded with zeros

A rule says which kinds a step takes and gives; `*` is any but `t`, the same one
wherever it stands in one rule.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from . import customs
from .customs import WIDTH

LENGTH = 3
SHAPES = {
    "v": (WIDTH,),
    "s": (LENGTH, WIDTH),
    "i": (LENGTH, LENGTH, WIDTH),
    "t": (LENGTH,),
}
VOCABULARY = 5

# The values of an option, the default first; one that stands twice is drawn more.
flag = (False, True)
some_seed = (None, 7)
regularizer = (None, None, "l2")
# What every layer takes.
COMMON = {
    "trainable": (True, True, True, False),
    "dtype": (None, None, None, None, "float32", "mixed_bfloat16"),
}


@dataclass(frozen=True)
class Rule:
    """How one kind of step is drawn and made."""

    make: Callable[..., Any]
    takes: str
    gives: str
    options: dict[str, tuple[Any, ...]]
    is_layer: bool
    serialisable: bool

    @property
    def defaults(self) -> dict[str, Any]:
        """The first value of each option."""
        return {name: values[0] for name, values in self.options.items()}


RULES: dict[str, Rule] = {}


def op(takes, gives, **options):
    """Registers a function that makes a function of tensors."""

    def register(make):
        RULES[make.__name__] = Rule(make, takes, gives, options, False, True)
        return make

    return register


def layer(takes, gives, *, serialisable=True, **options):
    """Registers a function that makes a layer."""

    def register(make):
        drawn = options | COMMON
        RULES[make.__name__] = Rule(make, takes, gives, drawn, True, serialisable)
        return make

    return register


# --- layers of Keras -----------------------------------------------------------


@layer("*", "*", activation=(None, "relu"), l2=regularizer, bias=flag)
def dense(activation, l2, bias, **common):
    return layers.Dense(
        WIDTH, activation, use_bias=bias, kernel_regularizer=l2, **common
    )


@layer("*", "*", l2=regularizer, scale=flag)
def batch_norm(l2, scale, **common):
    return layers.BatchNormalization(scale=scale, beta_regularizer=l2, **common)


@layer("*", "*")
def layer_norm(**common):
    return layers.LayerNormalization(**common)


@layer("*", "*", seed=some_seed)
def dropout(seed, **common):
    return layers.Dropout(0.5, seed=seed, **common)


@layer("*", "*", kind=("relu", "tanh", "softmax"), penalty=regularizer)
def activation(kind, penalty, **common):
    return layers.Activation(kind, activity_regularizer=penalty, **common)


@layer("t", "s", mask_zero=flag, l2=regularizer)
def embedding(mask_zero, l2, **common):
    return layers.Embedding(
        VOCABULARY, WIDTH, mask_zero=mask_zero, embeddings_regularizer=l2, **common
    )


@layer("s", "s")
def masking(**common):
    return layers.Masking(0.0, **common)


@layer("s", "s", kernel=(2, 3), l2=regularizer)
def conv1d(kernel, l2, **common):
    return layers.Conv1D(WIDTH, kernel, padding="same", kernel_regularizer=l2, **common)


@layer("i", "i", kernel=(2, 3), depthwise=flag)
def conv2d(kernel, depthwise, **common):
    if depthwise:
        return layers.DepthwiseConv2D(kernel, padding="same", **common)
    return layers.Conv2D(WIDTH, kernel, padding="same", **common)


@layer("i", "i", largest=flag)
def pooling(largest, **common):
    kind = layers.MaxPooling2D if largest else layers.AveragePooling2D
    return kind(2, strides=1, padding="same", **common)


@layer("ss", "s", heads=(1, 2), rate=(0.0, 0.5))
def attention(heads, rate, **common):
    return layers.MultiHeadAttention(heads, key_dim=2, dropout=rate, **common)


@layer("s", "v", largest=flag)
def pool_steps(largest, **common):
    kinds = layers.GlobalAveragePooling1D, layers.GlobalMaxPooling1D
    return kinds[largest](**common)


@layer("i", "v")
def pool_pixels(**common):
    return layers.GlobalAveragePooling2D(**common)


@layer("s", "s", cell=("simple", "gru", "both ways"))
def recurrent(cell, **common):
    if cell == "gru":
        return layers.GRU(WIDTH, return_sequences=True, unroll=True, **common)
    rnn = layers.SimpleRNN(WIDTH, return_sequences=True, unroll=True, **common)
    return rnn if cell == "simple" else layers.Bidirectional(rnn, merge_mode="sum")


@layer("s", "s")
def per_step(**common):
    return layers.TimeDistributed(layers.Dense(WIDTH, **common), **common)


@layer("v", "s")
def repeat(**common):
    return layers.RepeatVector(LENGTH, **common)


@layer("i", "s")
def reshape(**common):
    return keras.Sequential(
        [
            layers.Flatten(**common),
            layers.Dense(LENGTH * WIDTH, **common),
            layers.Reshape((LENGTH, WIDTH), **common),
        ]
    )


@layer("**", "*", kind=("Add", "Multiply", "Average", "Maximum"))
def merge(kind, **common):
    made = getattr(layers, kind)(**common)
    return lambda a, b: made([a, b])


@layer("**", "*")
def concatenate(**common):
    made = layers.Concatenate(**common)
    return lambda a, b: made([a, b])[..., 2 : 2 + WIDTH]


CLOSURES = "number", "array", "layer", "variable", "default", "partial"


@layer("*", "*", serialisable=False, over=CLOSURES)
def closure(over, **common):
    """A Lambda around a function that carries something along."""
    number, array = 2.0, np.linspace(-1.0, 1.0, WIDTH, dtype="float32")
    inner = layers.Dense(WIDTH, name="inside_a_closure")
    inner.build((None, WIDTH))
    variable = keras.Variable(array, name="in_a_closure")
    function = {
        "number": lambda x: x * number,
        "array": lambda x: x + ops.cast(array, x.dtype),
        "layer": lambda x: inner(x),
        "variable": lambda x: x * ops.cast(variable, x.dtype),
        "default": lambda x, by=(array, {"more": number}): x * by[1]["more"],
        "partial": functools.partial(lambda x, by: x - ops.cast(by, x.dtype), by=array),
    }[over]
    return layers.Lambda(function, **common)


# --- custom layers -------------------------------------------------------------


@layer("*", "*")
def counting(**common):
    return customs.Counting(**common)


@layer("*", "*", seed=some_seed)
def noisy(seed, **common):
    return customs.Noisy(seed, **common)


@layer("*", "*", rate=(0.0, 0.5))
def block(rate, **common):
    return customs.Block(rate, **common)


@layer("s", "s")
def first_only(**common):
    return customs.FirstOnly(**common)


@layer("*", "*", factor=(0.1, 1.0))
def penalty(factor, **common):
    return customs.Penalty(factor, **common)


@layer("*", "**", named=flag)
def split(named, **common):
    return customs.Split(named, **common)


@layer("**", "*")
def gate(**common):
    made = customs.Gate(**common)
    return lambda x, gate: made(x, gate=gate)


# --- operations on tensors -----------------------------------------------------


@op("**", "*")
def arithmetic():
    return lambda a, b: 2 * a - b / 3.0


@op("**", "*")
def where():
    return lambda a, b: ops.where(a > 0, a, ops.tanh(b))


@op("*", "*")
def halves():
    def swap(x):
        left, right = ops.split(x, 2, axis=-1)
        return ops.concatenate([right, left], axis=-1)

    return swap


@op("*", "*")
def flip():
    return lambda x: ops.flip(x, axis=-1)


@op("ss", "s")
def einsum():
    return lambda a, b: ops.einsum("bik,bjk,bjl->bil", a, b, b)


@op("s", "v", step=(0, -1))
def one_step(step):
    return lambda x: x[:, step]


@op("i", "s")
def one_row():
    return lambda x: x[:, 1]


@op("s", "i")
def stack():
    return lambda x: ops.stack([x, x, -x], axis=1)


@op("v", "s")
def outer():
    return lambda x: ops.expand_dims(x, 1) * ops.ones((LENGTH, 1), dtype=x.dtype)


@op("t", "t")
def reverse_tokens():
    return lambda x: ops.flip(x, axis=1)
