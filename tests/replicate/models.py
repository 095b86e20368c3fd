"""Models that are trained on one device and on several, and their data."""

import keras
import numpy as np
from keras import layers, ops

BACKEND = keras.backend.backend()
ROWS = 30
_RNG = np.random.default_rng(0)


def floats(*shape):
    return _RNG.normal(size=(ROWS, *shape)).astype("float32")


def classes(n):
    return _RNG.integers(0, n, ROWS)


IMAGES, TOKENS, TABLE = floats(8, 8, 3), _RNG.integers(0, 9, (ROWS, 7)), floats(5)
TOKENS[:, 4:] *= _RNG.integers(0, 2, (ROWS, 1))  # Zeros are masked.
KINDS, VALUES = classes(3), floats(2)


def compiled(model, loss="mse", metrics=("mae",)):
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    # With an empty list Keras waits for metrics, which a step of one's own never has.
    model.compile(optimizer, loss, metrics=list(metrics) or None)
    return model


def cnn():
    x = keras.Input((8, 8, 3), name="image")
    h = layers.Conv2D(4, 3, name="conv")(x)
    h = layers.BatchNormalization(momentum=0.8, name="norm")(h)
    h = layers.GlobalAveragePooling2D()(layers.ReLU()(h))
    y = layers.Dense(3, activation="softmax", name="kind")(h)
    model = keras.Model(x, y, name="cnn")
    return compiled(model, "sparse_categorical_crossentropy", ["accuracy"])


def masked_lstm():
    x = keras.Input((7,), dtype="int32", name="tokens")
    h = layers.Embedding(9, 4, mask_zero=True)(x)
    y = layers.Dense(2, name="value")(layers.LSTM(5)(h))
    return compiled(keras.Model(x, y, name="masked_lstm"))


def transformer(rate=0.2):
    x = keras.Input((7,), dtype="int32", name="tokens")
    h = layers.Embedding(9, 8, mask_zero=True)(x)
    a = layers.MultiHeadAttention(2, 4, dropout=rate, seed=1)(h, h)
    h = layers.LayerNormalization()(h + layers.Dropout(rate, seed=2)(a))
    h = layers.Dense(8, activation="relu")(h)
    y = layers.Dense(2, name="value")(layers.GlobalAveragePooling1D()(h))
    return compiled(keras.Model(x, y, name="transformer"))


def several_inputs_and_outputs():
    a, b = keras.Input((5,), name="a"), keras.Input((8, 8, 3), name="b")
    shared = layers.Dense(4, name="shared")
    h = layers.Concatenate()([shared(a), shared(shared(a) @ ops.ones((4, 5)))])
    g = layers.Flatten()(layers.Conv2D(2, 5, strides=2)(b))
    first = layers.Dense(2, name="first", kernel_regularizer="l2")(h)
    second = layers.Dense(3, activation="softmax", name="second")(g)
    model = keras.Model({"a": a, "b": b}, {"first": first, "second": second})
    return compiled(
        model,
        {"first": "mse", "second": "sparse_categorical_crossentropy"},
        (),
    )


def two_output_lambda():
    """The model of keras #12202."""
    x = keras.Input((5,), name="x")
    first, second = layers.Lambda(lambda t: [t, t], name="split")(x)
    h = layers.Add(name="add")([first, second])
    return compiled(keras.Model(x, layers.Dense(2, name="value")(h), name="origin"))


def sequential():
    model = keras.Sequential(
        [keras.Input((5,)), layers.Dense(6, activation="tanh"), layers.Dense(2)],
        name="sequential",
    )
    return compiled(model)


class Doubling(keras.Model):
    """Has a training step of its own, which doubles the loss."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(width, activation="tanh")
        self.out = layers.Dense(2)

    def call(self, x, training=False):
        return self.out(self.hidden(x))

    if BACKEND == "jax":

        def train_step(self, state, data):
            import jax

            weights, others, slots, metrics = state
            x, y = data[:2]

            def loss_of(weights):
                predicted, new_others = self.stateless_call(
                    weights, others, x, training=True
                )
                return 2.0 * self.compute_loss(x, y, predicted), new_others

            gradient = jax.value_and_grad(loss_of, has_aux=True)
            (loss, others), gradients = gradient(weights)
            weights, slots = self.optimizer.stateless_apply(slots, gradients, weights)
            return {"loss": loss}, (weights, others, slots, metrics)

    elif BACKEND == "torch":

        def train_step(self, data):
            x, y = data[:2]
            loss = 2.0 * self.compute_loss(x, y, self(x, training=True))
            self.zero_grad()
            loss.backward()
            weights = list(self.trainable_weights)
            gradients = [v.value.grad for v in weights]
            import torch

            with torch.no_grad():
                self.optimizer.apply(gradients, weights)
            return {"loss": loss}

    else:

        def train_step(self, data):
            import tensorflow as tf

            x, y = data[:2]
            with tf.GradientTape() as tape:
                loss = 2.0 * self.compute_loss(x, y, self(x, training=True))
            weights = self.trainable_weights
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply(gradients, weights)
            return {"loss": loss}


def own_train_step():
    model = Doubling(6, name="doubling")
    model(TABLE)
    return compiled(model, metrics=())


def named_anew(build):
    """Lets Keras count from the start: processes must come to the same names."""

    def build_anew(**kwargs):
        keras.utils.clear_session()
        return build(**kwargs)

    return build_anew


_BUILDERS = {
    "cnn": (cnn, IMAGES, KINDS),
    "masked_lstm": (masked_lstm, TOKENS, VALUES),
    "several": (
        several_inputs_and_outputs,
        {"a": TABLE, "b": IMAGES},
        {"first": VALUES, "second": KINDS},
    ),
    "origin": (two_output_lambda, TABLE, VALUES),
    "sequential": (sequential, TABLE, VALUES),
    "own_train_step": (own_train_step, TABLE, VALUES),
    "transformer": (transformer, TOKENS, VALUES),
}

BUILDERS = {
    name: (named_anew(build), x, y) for name, (build, x, y) in _BUILDERS.items()
}
