"""A small model, fresh or trained, and whether two are equal to the last bit."""

import keras
import numpy as np
from keras import layers


def small_model(**kwargs):
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3, activation="relu", name="hidden"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.5, seed=1, name="drop"),
            layers.Dense(2, name="head"),
        ],
        **kwargs,
    )


def batch(seed=0):
    generator = np.random.default_rng(seed)
    return generator.random((8, 4), "float32"), generator.random((8, 2), "float32")


def trained_model(**kwargs):
    model = small_model()
    model.compile(
        keras.optimizers.Adam(0.01), "mse", metrics=["mae"], run_eagerly=True, **kwargs
    )
    model.train_on_batch(*batch())
    return model


def values(*holders):
    return [v.numpy().copy() for holder in holders for v in holder.variables]


def all_equal(left, right):
    return len(left) == len(right) and all(
        a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True)
    )
