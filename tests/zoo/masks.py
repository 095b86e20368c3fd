"""Masks: where they are made, carried, changed, read and dropped."""

import keras
from keras import layers, ops

from .data import floats, padded, tokens
from .registry import Case, case, learns


class TwoWays(layers.Layer):
    """Two outputs, the first of which alone has a mask."""

    supports_masking = True

    def call(self, x):
        return x, 2.0 * x

    def compute_mask(self, inputs, mask=None):
        return mask, None


class FirstStepsOnly(layers.Layer):
    """Masks all but the first `steps` steps, whatever it was given."""

    def __init__(self, steps, **kwargs):
        super().__init__(**kwargs)
        self.steps = steps
        self.supports_masking = True

    def call(self, x):
        return 1.0 * x

    def compute_mask(self, inputs, mask=None):
        position = ops.cumsum(ops.ones_like(inputs[..., 0]), axis=1)
        return position <= self.steps


class MaskedMean(layers.Layer):
    """Reads the mask and does not pass it on."""

    def call(self, x, mask=None):
        if mask is None:
            return ops.mean(x, axis=1)
        weight = ops.cast(mask, x.dtype)[..., None]
        return ops.sum(x * weight, axis=1) / (ops.sum(weight, axis=1) + 1e-3)

    def compute_mask(self, inputs, mask=None):
        return None


class Encoder(layers.Layer):
    """A layer made of layers, between which a mask travels."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(7, 4, mask_zero=True)
        self.reader = layers.LSTM(3)

    def build(self, shape):
        self.embedding.build(shape)
        self.reader.build((*shape, 4))

    def call(self, ids):
        return self.reader(self.embedding(ids))


def _embedded(ids, width=4):
    return layers.Embedding(7, width, mask_zero=True)(ids)


def _over_tokens(head, *targets):
    ids = keras.Input((5,), dtype="int32")
    model = keras.Model(ids, head(_embedded(ids)))
    return learns(model, tokens(), *targets)


def _over_steps(*chain):
    x = y = keras.Input((5, 4))
    for layer in chain:
        y = layer(y)
    return Case(keras.Model(x, y), padded())


@case("masks/embedding_lstm")
def _():
    return _over_tokens(layers.LSTM(3), floats(3))


@case("masks/embedding_gru_sequences")
def _():
    return _over_tokens(layers.GRU(3, return_sequences=True), floats(5, 3))


@case("masks/masking_lstm")
def _():
    return _over_steps(layers.Masking(), layers.LSTM(3))


@case("masks/through_elementwise_layers")
def _():
    return _over_steps(
        layers.Masking(),
        layers.Dropout(0.3, seed=1),
        layers.BatchNormalization(),
        layers.LayerNormalization(),
        layers.Activation("relu"),
        layers.TimeDistributed(layers.Dense(3)),
        layers.LSTM(2),
    )


@case("masks/batch_norm_of_padded_steps")
def _():
    x = keras.Input((5, 4))
    y = layers.BatchNormalization(momentum=0.5)(layers.Masking()(x))
    return learns(keras.Model(x, y), padded(), floats(5, 4))


@case("masks/through_bidirectional")
def _():
    return _over_steps(
        layers.Masking(),
        layers.Bidirectional(layers.GRU(2, return_sequences=True)),
        layers.LSTM(2),
    )


@case("masks/through_time_distributed_model")
def _():
    step = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    return _over_steps(layers.Masking(), layers.TimeDistributed(step), layers.LSTM(2))


@case("masks/two_concatenated")
def _():
    a, b = keras.Input((5,), dtype="int32"), keras.Input((5, 4))
    joined = layers.Concatenate()([_embedded(a), layers.Masking()(b)])
    model = keras.Model([a, b], layers.LSTM(2)(joined))
    return learns(model, [tokens(), padded()], floats(2))


@case("masks/two_concatenated_in_time")
def _():
    a, b = keras.Input((5,), dtype="int32"), keras.Input((5, 4))
    joined = layers.Concatenate(axis=1)([_embedded(a), layers.Masking()(b)])
    return Case(keras.Model([a, b], layers.LSTM(2)(joined)), [tokens(), padded()])


@case("masks/one_of_two_added")
def _():
    a, b = keras.Input((5, 4)), keras.Input((5, 4))
    summed = layers.Add()([layers.Masking()(a), b])
    model = keras.Model([a, b], layers.LSTM(2)(summed))
    return Case(model, [padded(), floats(5, 4, seed=1)])


@case("masks/out_of_a_nested_functional")
def _():
    ids = keras.Input((5,), dtype="int32")
    inner = keras.Model(ids, _embedded(ids))
    outer = keras.Input((5,), dtype="int32")
    model = keras.Model(outer, layers.LSTM(2)(inner(outer)))
    return learns(model, tokens(), floats(2))


@case("masks/into_a_nested_functional")
def _():
    steps = keras.Input((5, 4))
    inner = keras.Model(steps, layers.LSTM(2)(layers.Dropout(0.1)(steps)))
    return _over_tokens(inner, floats(2))


@case("masks/out_of_a_nested_sequential")
def _():
    inner = keras.Sequential(
        [layers.Embedding(7, 4, mask_zero=True), layers.Dropout(0.2, seed=2)]
    )
    ids = keras.Input((5,), dtype="int32")
    model = keras.Model(ids, layers.LSTM(2)(inner(ids)))
    return learns(model, tokens(), floats(2))


@case("masks/in_a_sequential")
def _():
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(7, 4, mask_zero=True),
            layers.LSTM(3, return_sequences=True),
            layers.Dropout(0.5, seed=3),
            layers.LSTM(2),
        ]
    )
    return learns(model, tokens(), floats(2))


@case("masks/inside_a_layer")
def _():
    ids = keras.Input((5,), dtype="int32")
    return learns(keras.Model(ids, Encoder()(ids)), tokens(), floats(3))


@case("masks/custom_compute_mask")
def _():
    return _over_steps(FirstStepsOnly(2), layers.LSTM(2))


@case("masks/replaced_on_the_way")
def _():
    return _over_steps(layers.Masking(), FirstStepsOnly(4), layers.LSTM(2))


@case("masks/two_outputs_one_mask")
def _():
    x = keras.Input((5, 4))
    masked, plain = TwoWays()(layers.Masking()(x))
    model = keras.Model(x, [layers.LSTM(2)(masked), layers.LSTM(2)(plain)])
    return learns(model, padded(), [floats(2), floats(2)])


@case("masks/two_outputs_no_mask")
def _():
    x = keras.Input((5, 4))
    a, b = TwoWays()(x)
    return Case(keras.Model(x, layers.Add()([a, b])), floats(5, 4))


@case("masks/two_output_lambda")
def _():
    x = keras.Input((4,))
    pair = layers.Lambda(lambda t: [t, t])(x)
    return Case(keras.Model(x, layers.Add()(pair)), floats(4))


@case("masks/into_a_two_output_lambda")
def _():
    x = keras.Input((5, 4))
    a, b = layers.Lambda(lambda t: [t, t + 1.0])(layers.Masking()(x))
    return Case(keras.Model(x, layers.LSTM(2)(layers.Add()([a, b]))), padded())


@case("masks/lambda_with_a_mask_function")
def _():
    x = keras.Input((5, 4))
    y = layers.Lambda(
        lambda t: 2.0 * t, mask=lambda t, mask=None: ops.any(t > 0.5, axis=-1)
    )(x)
    return Case(keras.Model(x, layers.LSTM(2)(y)), floats(5, 4))


@case("masks/lambda_reads_the_mask")
def _():
    def zero_out(x, mask=None):
        return x if mask is None else x + ops.cast(mask, x.dtype)[..., None]

    return _over_steps(layers.Masking(), layers.Lambda(zero_out))


@case("masks/consumed")
def _():
    return _over_tokens(MaskedMean(), floats(4))


@case("masks/pooled")
def _():
    return _over_tokens(layers.GlobalAveragePooling1D(), floats(4))


@case("masks/into_layers_that_ignore_it")
def _():
    return _over_steps(layers.Masking(), layers.Conv1D(3, 2), layers.Flatten())


@case("masks/explicit_argument")
def _():
    x, keep = keras.Input((5, 4)), keras.Input((5,), dtype="bool")
    model = keras.Model([x, keep], layers.LSTM(2)(x, mask=keep))
    return learns(model, [padded(), tokens() > 0], floats(2))


@case("masks/explicit_and_computed")
def _():
    ids = keras.Input((5,), dtype="int32")
    keep = ops.not_equal(ids, 0)
    y = layers.LSTM(2)(layers.Embedding(7, 4)(ids), mask=keep)
    return learns(keras.Model(ids, y), tokens(), floats(2))


@case("masks/explicit_over_implicit")
def _():
    x, keep = keras.Input((5, 4)), keras.Input((5,), dtype="bool")
    y = layers.LSTM(2)(layers.Masking()(x), mask=keep)
    return Case(keras.Model([x, keep], y), [padded(), floats(5) > 0])


@case("masks/compute_mask_called_by_hand")
def _():
    ids = keras.Input((5,), dtype="int32")
    embedding = layers.Embedding(7, 4, mask_zero=True)
    y = layers.LSTM(2)(embedding(ids), mask=embedding.compute_mask(ids))
    return learns(keras.Model(ids, y), tokens(), floats(2))


@case("masks/attention_over_embedding")
def _():
    attention = layers.MultiHeadAttention(2, 3)
    return _over_tokens(lambda x: attention(x, x), floats(5, 4))


@case("masks/attention_with_an_explicit_mask")
def _():
    x, keep = keras.Input((5, 4)), keras.Input((5, 5), dtype="bool")
    y = layers.MultiHeadAttention(2, 3)(x, x, attention_mask=keep)
    model = keras.Model([x, keep], y)
    return learns(model, [floats(5, 4), floats(5, 5) > -0.5], floats(5, 4))


@case("masks/attention_causal_and_padding")
def _():
    attention = layers.MultiHeadAttention(2, 3)
    return _over_tokens(
        lambda x: layers.LSTM(2)(attention(x, x, use_causal_mask=True)),
        floats(2),
    )


@case("masks/cross_attention_two_masks")
def _():
    query, value = keras.Input((5,), dtype="int32"), keras.Input((5, 4))
    y = layers.Attention()([_embedded(query), layers.Masking()(value)])
    model = keras.Model([query, value], y)
    return learns(model, [tokens(), padded()], floats(5, 4))


@case("masks/masking_of_the_input_twice")
def _():
    x = keras.Input((5, 4))
    mask = layers.Masking()
    a, b = layers.LSTM(2)(mask(x)), layers.GRU(2)(mask(x))
    return learns(keras.Model(x, layers.Add()([a, b])), padded(), floats(2))


@case("masks/an_output_that_carries_a_mask")
def _():
    x = keras.Input((5, 4))
    return Case(keras.Model(x, layers.Masking()(x)), padded())
