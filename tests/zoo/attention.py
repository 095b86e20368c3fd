"""Attention and normalization."""

import keras
from keras import layers

from .data import floats
from .registry import Case, case, compile_quickly, learns

STEPS = (5, 4)


def _self_attention(layer, **call):
    x = keras.Input(STEPS)
    y = layer(x, x, **call)
    return learns(keras.Model(x, y), floats(*STEPS), floats(*STEPS))


def _pair(layer):
    query, value = keras.Input((5, 4)), keras.Input((3, 4))
    model = keras.Model([query, value], layer([query, value]))
    return learns(model, [floats(5, 4), floats(3, 4)], floats(5, 4))


def _normalized(layer, shape=(4,)):
    """A normalization between two layers, after two steps of training."""
    x = keras.Input(shape)
    y = layers.Dense(4)(layer(layers.Dense(4)(x)))
    model = keras.Model(x, y)
    compile_quickly(model, "adam")
    for seed in range(2):
        inputs = floats(*shape, seed=seed)
        model.train_on_batch(inputs, floats(*shape, seed=7))
    return learns(model, floats(*shape), floats(*shape))


@case("attention/multi_head")
def _():
    return _self_attention(layers.MultiHeadAttention(2, 3))


@case("attention/multi_head_dropout")
def _():
    return _self_attention(layers.MultiHeadAttention(2, 3, dropout=0.3, seed=1))


@case("attention/multi_head_causal")
def _():
    layer = layers.MultiHeadAttention(2, 3, use_bias=False)
    return _self_attention(layer, use_causal_mask=True)


@case("attention/multi_head_axes")
def _():
    x = keras.Input((3, 4, 2))
    y = layers.MultiHeadAttention(2, 3, attention_axes=(1, 2))(x, x)
    return learns(keras.Model(x, y), floats(3, 4, 2), floats(3, 4, 2))


@case("attention/multi_head_output_shape")
def _():
    x = keras.Input(STEPS)
    y = layers.MultiHeadAttention(2, 3, output_shape=6)(x, x)
    return learns(keras.Model(x, y), floats(*STEPS), floats(5, 6))


@case("attention/multi_head_scores")
def _():
    x = keras.Input(STEPS)
    layer = layers.MultiHeadAttention(2, 3)
    y, scores = layer(x, x, return_attention_scores=True)
    return Case(keras.Model(x, [y, scores]), floats(*STEPS))


@case("attention/multi_head_query_key_value")
def _():
    x = keras.Input(STEPS)
    key, value = layers.Dense(4)(x), layers.Dense(4)(x)
    y = layers.MultiHeadAttention(2, 3)(x, value, key=key)
    return learns(keras.Model(x, y), floats(*STEPS), floats(*STEPS))


@case("attention/one_layer_for_self_and_cross")
def _():
    query, value = keras.Input((5, 4)), keras.Input((3, 4))
    layer = layers.MultiHeadAttention(2, 3)
    y = layer(layer(query, query), value)
    model = keras.Model([query, value], y)
    return learns(model, [floats(5, 4), floats(3, 4)], floats(5, 4))


@case("attention/grouped_query")
def _():
    return _self_attention(layers.GroupQueryAttention(3, 4, 2))


@case("attention/grouped_query_window")
def _():
    layer = layers.GroupQueryAttention(3, 4, 2, sliding_window=2, dropout=0.1)
    return _self_attention(layer, use_causal_mask=True)


@case("attention/dot")
def _():
    return _pair(layers.Attention(use_scale=True, dropout=0.2, seed=1))


@case("attention/concat_scores")
def _():
    return _pair(layers.Attention(use_scale=True, score_mode="concat"))


@case("attention/additive")
def _():
    return _pair(layers.AdditiveAttention())


@case("norm/batch")
def _():
    return _normalized(layers.BatchNormalization(momentum=0.7))


@case("norm/batch_renorm_free")
def _():
    return _normalized(layers.BatchNormalization(scale=False, center=False))


@case("norm/batch_other_axis")
def _():
    return _normalized(layers.BatchNormalization(axis=1), STEPS)


@case("norm/layer")
def _():
    return _normalized(layers.LayerNormalization(epsilon=1e-2), STEPS)


@case("norm/layer_two_axes")
def _():
    return _normalized(layers.LayerNormalization(axis=(1, 2)), STEPS)


@case("norm/rms")
def _():
    return _normalized(layers.RMSNormalization())


@case("norm/group")
def _():
    return _normalized(layers.GroupNormalization(2), STEPS)


@case("norm/unit")
def _():
    return _normalized(layers.UnitNormalization())


@case("norm/spectral")
def _():
    return _normalized(
        layers.SpectralNormalization(layers.Dense(4), power_iterations=2)
    )


@case("norm/spectral_conv")
def _():
    x = keras.Input((5, 5, 2))
    y = layers.SpectralNormalization(layers.Conv2D(3, 3))(x)
    return learns(keras.Model(x, y), floats(5, 5, 2), floats(3, 3, 3))
