"""Custom layers and models of the kinds that people write."""

import weakref

import keras
from keras import layers, ops

WIDTH = 4

register = keras.saving.register_keras_serializable("fuzz")


@register
class Counting(layers.Layer):
    """Keeps state of its own: it counts the training calls."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="scale")
        self.count = self.add_weight(
            shape=(), initializer="zeros", trainable=False, dtype="float32"
        )
        self.history = [{"first": self.scale}, (self.count, "calls")]

    def call(self, x, training=False):
        if training:
            self.count.assign_add(1.0)
        # What a model of another policy passes in has a type of its own.
        scale, count = (ops.cast(v, x.dtype) for v in (self.scale, self.count))
        return x * scale + count


@register
class Noisy(layers.Layer):
    """Draws from a random stream of its own."""

    def __init__(self, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.seed = seed
        self.generator = keras.random.SeedGenerator(seed)

    def call(self, x, training=False):
        if not training:
            return x
        return x + keras.random.normal(ops.shape(x), dtype=x.dtype, seed=self.generator)

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


@register
class Block(layers.Layer):
    """Holds layers in a list and in a dict, one of them twice, and they know it."""

    def __init__(self, rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        first = layers.Dense(WIDTH, "relu", dtype=self.dtype_policy)
        drop = layers.Dropout(rate, seed=3, dtype=self.dtype_policy)
        norm = layers.LayerNormalization(dtype=self.dtype_policy)
        self.stack = [first, drop, first]
        self.named = {"norm": norm, "again": first}
        first.parent = weakref.ref(self)

    def build(self, shape):
        self.stack[0].build(shape)
        self.named["norm"].build(shape)

    def call(self, x, training=False):
        for layer in self.stack:
            x = layer(x)
        return self.named["norm"](x)

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}


@register
class FirstOnly(layers.Layer):
    """Sets a mask: only the first step of a sequence counts."""

    supports_masking = True

    def call(self, x):
        return x + 0

    def compute_mask(self, inputs, previous_mask=None):
        return ops.equal(ops.cumsum(ops.ones_like(inputs[..., 0]), axis=1), 1)


@register
class Penalty(layers.Layer):
    """Adds a loss."""

    supports_masking = True

    def __init__(self, factor=0.1, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        self.add_loss(self.factor * ops.mean(ops.cast(ops.square(x), "float32")))
        return x

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


@register
class Split(layers.Layer):
    """Has two outputs, as a tuple or as a dict."""

    def __init__(self, named=False, **kwargs):
        super().__init__(**kwargs)
        self.named = named

    def build(self, shape):
        self.shift = self.add_weight(shape=(shape[-1],), name="shift")

    def call(self, x):
        up, down = x + self.shift, x - self.shift
        return {"up": up, "down": down} if self.named else (up, down)

    def get_config(self):
        return {**super().get_config(), "named": self.named}


@register
class Gate(layers.Layer):
    """Takes a second tensor as a keyword."""

    def build(self, x_shape, gate_shape=None):
        self.scale = self.add_weight(shape=(x_shape[-1],), name="scale")

    def call(self, x, gate=None):
        scale = ops.cast(self.scale, x.dtype)
        if gate is None:
            return x * scale
        return x * ops.tanh(ops.cast(gate, x.dtype) * scale)


class Tied(layers.Layer):
    """Multiplies with a kernel that another layer owns."""

    supports_masking = True

    def __init__(self, source, **kwargs):
        super().__init__(**kwargs)
        self.source = source

    def call(self, x):
        x = ops.convert_to_tensor(x, sparse=False)  # TensorFlow: rank 2 only.
        if isinstance(self.source, layers.Layer):
            return ops.matmul(x, ops.transpose(self.source.kernel))
        return ops.matmul(x, self.source)


@register
class Wrapped(keras.Model):
    """A subclassed model around another model."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner
        self.notes = {"calls": [], "inner": [inner]}

    def call(self, x, training=False):
        return self.inner(x, training=training)

    def get_config(self):
        return {"inner": keras.saving.serialize_keras_object(self.inner)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["inner"]))


class Grown(keras.Model):
    """A functional model of a class of its own, with more on it."""

    def __init__(self, inputs, outputs, note, **kwargs):
        super().__init__(inputs, outputs, **kwargs)
        self.note = note
        self.spare = layers.Dense(2)
        self.spare.build((None, 2))
