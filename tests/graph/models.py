"""Models that are edited in the tests, small and without compiled functions."""

import keras
import numpy as np
from keras import layers, ops

register = keras.saving.register_keras_serializable("graph_tests")


@register
class Stack(layers.Layer):
    """Holds layers in a list and in a dict."""

    def __init__(self, count=2, **kwargs):
        super().__init__(**kwargs)
        self.count = count
        self.items = [layers.Dense(4, name=f"item_{i}") for i in range(count)]
        self.named = {"norm": layers.LayerNormalization(name="norm")}

    def build(self, shape):
        for layer in [*self.items, self.named["norm"]]:
            layer.build(shape)

    def call(self, x):
        for layer in self.items:
            x = layer(x)
        return self.named["norm"](x)

    def get_config(self):
        return {**super().get_config(), "count": self.count}


@register
class Halves(layers.Layer):
    """Returns two tensors for one, or for the first of several."""

    def call(self, x):
        x = x[0] if isinstance(x, list) else x
        return x * 0.5, x * 0.25


@register
class Scaled(layers.Wrapper):
    """A wrapper of a user: what the layer returns, times a weight."""

    def build(self, shape=None):
        super().build(shape)
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x):
        return self.layer(x) * self.scale


def branched():
    """A residual block of vectors: `x - a - bn - (b - relu) - add - head`."""
    x = keras.Input((8,), name="x")
    h = skip = layers.BatchNormalization(name="bn")(
        layers.Dense(6, activation="relu", name="a")(x)
    )
    h = layers.ReLU(name="relu")(layers.Dense(6, name="b")(h))
    h = layers.Add(name="add")([h, skip])
    return keras.Model(x, layers.Dense(3, name="head")(h), name="net")


def in_a_row():
    """One layer, called three times in a row, and one twice."""
    x, shared = keras.Input((4,), name="x"), layers.Dense(4, name="shared")
    drop = layers.Dropout(0.5, seed=1, name="drop")
    return keras.Model(x, drop(shared(drop(shared(shared(x))))), name="row")


def nested():
    """Models in models, masks, shared models, and layers that hold layers."""
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    h = layers.Embedding(9, 4, mask_zero=True, name="embedding")(tokens)
    start = keras.Input((6, 4), name="start")
    ffn = keras.Sequential(
        [layers.Dense(4, name="up"), layers.ReLU(name="relu"), layers.Dense(4)],
        name="ffn",
    )
    e = layers.Dense(4, activation="relu", name="dense")(start)
    e = layers.LayerNormalization(name="norm")(e + start)
    encoder = keras.Model(start, ffn(e), name="encoder")
    h = encoder(encoder(h))
    left, right = keras.Input((6, 4), name="left"), keras.Input((6, 4), name="right")
    both = layers.Add(name="plus")([left, right])
    pair = keras.Model(
        [left, right], [both, layers.Dense(4, name="side")(right)], name="pair"
    )
    one, other = pair([h, layers.Dense(4, name="extra")(h)])
    h = layers.Concatenate(name="cat")([one, other])
    h = layers.Dense(4, name="narrow")(h)
    h = layers.MultiHeadAttention(2, 2, dropout=0.1, name="attention")(h, h)
    h = Stack(name="stack")(h)
    h = layers.TimeDistributed(layers.Dense(4, name="each"), name="every")(h)
    h = layers.Bidirectional(
        layers.LSTM(3, return_sequences=True, name="lstm"), name="both_ways"
    )(h)
    cells = [layers.GRUCell(3, name="gru"), layers.SimpleRNNCell(3, name="simple")]
    h = layers.RNN(cells, name="rnn")(h)
    first = layers.Dense(2, name="first")(h)
    second = layers.Dense(1, name="second")(ops.tanh(h))
    return keras.Model(tokens, {"first": first, "second": second}, name="deep")


def two_ends():
    """Two inputs by name and two outputs; operations with constants."""
    a = keras.Input((4,), name="a")
    b = keras.Input((4,), dtype="int32", name="b")
    h = layers.Flatten(name="flat")(layers.Embedding(5, 2, name="embedding")(b))
    h = layers.Concatenate(name="cat")([a, h])
    h = h * 2.0 + np.ones((1, 12), "float32")
    outputs = {"o": layers.Dense(2, name="o")(h), "p": layers.Dense(3, name="p")(h)}
    return keras.Model({"a": a, "b": b}, outputs, name="ends")


def chain():
    """A Sequential model."""
    return keras.Sequential(
        [
            keras.Input((4,), name="x"),
            layers.Dense(4, name="a"),
            layers.Dropout(0.5, seed=1, name="b"),
            layers.Dense(2, name="c"),
        ],
        name="chain",
    )


def trained(model, optimizer="adam", loss="mse", **compiled):
    """The model, compiled and trained for one step."""
    model.compile(optimizer, loss, run_eagerly=True, jit_compile=False, **compiled)
    step(model)
    return model


def step(model):
    """Trains for one step on zeros, with the same random numbers every time."""
    keras.utils.set_random_seed(3)

    def zeros(spec):
        return np.zeros((2, *spec.shape[1:]), "float32")

    targets = keras.tree.map_structure(zeros, _graph(model).output)
    return model.train_on_batch(numbers(model), targets)


def numbers(model, seed=0):
    """Inputs for a model."""
    generator = np.random.default_rng(seed)

    def draw(spec):
        shape = tuple(2 if n is None else n for n in spec.shape)
        if "int" in spec.dtype:
            return generator.integers(0, 4, shape).astype(spec.dtype)
        return generator.normal(size=shape).astype(spec.dtype)

    return keras.tree.map_structure(draw, _graph(model).input)


def _graph(model):
    return model._functional if isinstance(model, keras.Sequential) else model
