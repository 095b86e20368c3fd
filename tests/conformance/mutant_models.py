"""Small models on which the mistakes of faulty cloners show."""

import keras
from keras import layers, ops


class Unmasked(layers.Layer):
    """Hands on its input and forgets its mask."""

    def call(self, x):
        return ops.copy(x)

    def compute_mask(self, inputs, previous_mask=None):
        return None


class Twice(layers.Layer):
    """Has two outputs, both masked where the input has ones."""

    def call(self, x):
        return x * 2.0, x * 3.0

    def compute_mask(self, inputs, previous_mask=None):
        mask = ops.greater(inputs[..., 0], 0.0)
        return mask, mask


class Mean(layers.Layer):
    """Averages steps that are not masked.

    It is called with a keyword argument: Keras 3.15 itself stores the mask as an
    argument of a call that has none, and the mistakes below would not show.
    """

    def call(self, x, factor=1.0, mask=None):
        weights = ops.ones_like(x[..., :1])
        if mask is not None:
            weights *= ops.cast(mask, x.dtype)[..., None]
        return factor * ops.sum(x * weights, axis=1) / (1.0 + ops.sum(weights, axis=1))

    def compute_mask(self, inputs, previous_mask=None):
        return None


def mean(x):
    return Mean(name="mean")(x, factor=2.0)


def model(inputs, outputs):
    return keras.Model(inputs, outputs, name="model")


def two_outputs_of_a_lambda():
    x = keras.Input((4,), name="x")
    halves = layers.Lambda(lambda x: [x, 3.0 * x], name="split")(x)
    return model(x, layers.Subtract(name="minus")(halves))


def two_masks():
    x = keras.Input((3, 2), name="x")
    a, b = Twice(name="twice")(x)
    return model(x, [mean(a), Mean(name="other")(b, factor=3.0)])


def mask_from_a_layer():
    x = keras.Input((3,), dtype="int32", name="x")
    h = layers.Embedding(2, 4, mask_zero=True, name="embed")(x)
    return model(x, mean(h))


def mask_out_of_a_nested_model():
    y = keras.Input((3,), dtype="int32", name="y")
    h = layers.Embedding(2, 4, mask_zero=True, name="embed")(y)
    inner = keras.Model(y, h, name="inner")
    x = keras.Input((3,), dtype="int32", name="x")
    return model(x, mean(inner(x)))


def mask_given():
    x, m = keras.Input((3, 2), name="x"), keras.Input((3,), dtype="bool", name="m")
    return model([x, m], Mean(name="mean")(x, mask=m))


def stack():
    x = keras.Input((4,), name="x")
    h = layers.Dense(4, "relu", name="first")(x)
    return model(x, layers.Dense(4, "tanh", name="second")(h))


def shared():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    dense = layers.Dense(3, name="dense")
    return model([a, b], layers.Subtract(name="minus")([dense(a), dense(b)]))


def fixed_batch():
    x = keras.Input(batch_shape=(2, 4), name="x")
    return model(x, layers.Dense(3, name="dense")(x))


def sparse():
    x = keras.Input((4,), sparse=True, name="x")
    return model(x, layers.Dense(3, name="dense")(x))


class Default(layers.Layer):
    """Takes a second input that may be missing."""

    def call(self, a, b=None):
        return a if b is None else a - b


def optional():
    a = keras.Input((4,), name="a")
    b = keras.Input((4,), name="b", optional=True)
    return model([a, b], Default(name="default")(a, b))


def two_heads():
    x = keras.Input((4,), name="x")
    heads = [layers.Dense(2, name="one")(x), layers.Dense(2, name="two")(x)]
    return model(x, heads)
