"""Small models of the shapes that people train."""

import keras
from keras import layers, ops

from .data import floats, ints, tokens
from .registry import case, learns


class Patches(layers.Layer):
    """Cuts pictures into flat patches."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def call(self, pictures):
        patches = ops.image.extract_patches(pictures, self.size)
        width = patches.shape[-1]
        return ops.reshape(patches, (ops.shape(pictures)[0], -1, width))

    def compute_output_shape(self, shape):
        rows, columns = shape[1] // self.size, shape[2] // self.size
        return shape[0], rows * columns, shape[3] * self.size**2


class Positions(layers.Layer):
    """Adds a learnt vector to each position."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], name="table")

    def call(self, x):
        return x + self.table


def _transformer_block(x, width, causal=False):
    y = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(2, width // 2)(y, y, use_causal_mask=causal)
    x = layers.Add()([x, layers.Dropout(0.1, seed=1)(y)])
    y = layers.LayerNormalization()(x)
    y = layers.Dense(width)(layers.Dense(2 * width, activation="gelu")(y))
    return layers.Add()([x, y])


def _residual_block(x, filters):
    y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    y = layers.BatchNormalization()(y)
    y = layers.Conv2D(filters, 3, padding="same")(layers.ReLU()(y))
    if x.shape[-1] != filters:
        x = layers.Conv2D(filters, 1)(x)
    return layers.ReLU()(layers.Add()([x, y]))


@case("architectures/residual_network")
def _():
    x = keras.Input((8, 8, 1))
    y = _residual_block(x, 2)
    y = _residual_block(layers.MaxPooling2D()(y), 3)
    y = layers.Dense(2)(layers.GlobalAveragePooling2D()(y))
    return learns(keras.Model(x, y), floats(8, 8, 1), floats(2))


@case("architectures/language_model")
def _():
    ids = keras.Input((5,), dtype="int32")
    embedding = layers.ReversibleEmbedding(7, 4)
    y = Positions()(embedding(ids))
    for _ in range(2):
        y = _transformer_block(y, 4, causal=True)
    y = embedding(layers.LayerNormalization()(y), reverse=True)
    return learns(keras.Model(ids, y), tokens(), floats(5, 7))


@case("architectures/vision_transformer")
def _():
    x = keras.Input((8, 8, 1))
    y = Positions()(layers.Dense(4)(Patches(4)(x)))
    y = layers.GlobalAveragePooling1D()(_transformer_block(y, 4))
    return learns(keras.Model(x, layers.Dense(2)(y)), floats(8, 8, 1), floats(2))


@case("architectures/translation")
def _():
    source = keras.Input((5,), dtype="int32")
    target = keras.Input((4,), dtype="int32")
    memory = layers.Embedding(7, 4, mask_zero=True)(source)
    memory = _transformer_block(memory, 4)
    y = _transformer_block(layers.Embedding(7, 4)(target), 4, causal=True)
    y = layers.MultiHeadAttention(2, 2)(y, memory)
    model = keras.Model([source, target], layers.Dense(7)(y))
    return learns(model, [tokens(), ints(7, 4)], floats(4, 7))


@case("architectures/u_net")
def _():
    x = keras.Input((8, 8, 1))
    down = layers.Conv2D(2, 3, padding="same", activation="relu")(x)
    y = layers.Conv2D(3, 3, padding="same")(layers.MaxPooling2D()(down))
    up = layers.Conv2DTranspose(2, 2, strides=2)(y)
    y = layers.Conv2D(1, 1)(layers.Concatenate()([down, up]))
    return learns(keras.Model(x, y), floats(8, 8, 1), floats(8, 8, 1))


@case("architectures/wide_and_deep")
def _():
    features = {
        "kind": keras.Input((1,), dtype="int32", name="kind"),
        "size": keras.Input((3,), name="size"),
    }
    code = layers.Flatten()(layers.Embedding(5, 2)(features["kind"]))
    deep = layers.Dense(4, "relu")(layers.Concatenate()([code, features["size"]]))
    y = layers.Dense(1)(layers.Concatenate()([deep, features["size"]]))
    inputs = {"kind": ints(5, 1), "size": floats(3)}
    return learns(keras.Model(features, y), inputs, floats(1))


@case("architectures/squeeze_and_excite")
def _():
    x = keras.Input((6, 6, 4))
    gate = layers.GlobalAveragePooling2D(keepdims=True)(x)
    gate = layers.Conv2D(2, 1, activation="relu")(gate)
    gate = layers.Conv2D(4, 1, activation="sigmoid")(gate)
    y = layers.Multiply()([x, gate])
    return learns(keras.Model(x, y), floats(6, 6, 4), floats(6, 6, 4))


@case("architectures/mixture_of_experts")
def _():
    x = keras.Input((4,))
    gate = layers.Dense(3, activation="softmax", name="gate")(x)
    experts = ops.stack([layers.Dense(2)(x) for _ in range(3)], axis=1)
    y = ops.einsum("be,bed->bd", gate, experts)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("architectures/tagger")
def _():
    ids = keras.Input((5,), dtype="int32")
    y = layers.Embedding(7, 4, mask_zero=True)(ids)
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(y)
    y = layers.TimeDistributed(layers.Dense(2, activation="softmax"))(y)
    return learns(keras.Model(ids, y), tokens(), floats(5, 2))


@case("architectures/multi_task")
def _():
    x = keras.Input((8, 8, 1))
    trunk = keras.Sequential(
        [layers.Conv2D(2, 3), layers.BatchNormalization(), layers.Flatten()]
    )
    shared = trunk(x)
    heads = {
        "label": layers.Dense(3, activation="softmax")(shared),
        "value": layers.Dense(1)(shared),
    }
    targets = {"label": floats(3), "value": floats(1)}
    return learns(keras.Model(x, heads), floats(8, 8, 1), targets)


@case("architectures/transfer_learning")
def _():
    picture = keras.Input((8, 8, 1))
    y = layers.GlobalAveragePooling2D()(_residual_block(picture, 3))
    base = keras.Model(picture, y, name="base")
    base.trainable = False
    x = keras.Input((8, 8, 1))
    y = layers.Dense(2)(base(layers.RandomFlip(seed=1)(x), training=False))
    return learns(keras.Model(x, y), floats(8, 8, 1), floats(2))


@case("architectures/inverted_bottlenecks")
def _():
    x = y = keras.Input((8, 8, 2))
    for _ in range(3):
        wide = layers.Conv2D(6, 1, activation="relu6")(y)
        wide = layers.DepthwiseConv2D(3, padding="same")(wide)
        wide = layers.BatchNormalization()(wide)
        y = layers.Add()([y, layers.Conv2D(2, 1)(wide)])
    return learns(keras.Model(x, y), floats(8, 8, 2), floats(8, 8, 2))
