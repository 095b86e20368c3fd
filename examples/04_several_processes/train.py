"""Trains a model in one process or in several: the script is the same."""

import hashlib
import os

import keras

# Processes are joined before anything else happens. PyTorch's are by `replicate`.
if "KERAS_DISTRIBUTION_NUM_PROCESSES" in os.environ:
    keras.distribution.initialize()  # JAX
if "TF_CONFIG" in os.environ:
    import tensorflow as tf

    tf.distribute.MultiWorkerMirroredStrategy()

import numpy as np
from keras import layers

import regraft

keras.utils.set_random_seed(0)  # The same start, the same order of rows.

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.GlobalAveragePooling2D(),
        layers.Dense(2, activation="softmax"),
    ]
)
model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")

# Every process has all rows, and takes its own share of each batch.
images = np.random.default_rng(0).normal(size=(50, 8, 8, 1)).astype("float32")
labels = (images.mean((1, 2, 3)) > 0).astype("int32")

many = regraft.replicate(model)
checkpoint = keras.callbacks.ModelCheckpoint("last.keras")  # Rank 0 alone writes.
many.fit(images, labels, batch_size=16, epochs=3, verbose=0, callbacks=[checkpoint])

plain = regraft.gather(many)
digest = hashlib.sha256(b"".join(w.tobytes() for w in plain.get_weights()))
loss = plain.evaluate(images, labels, verbose=0)
print(f"{many.replicas.describe()}: loss {loss:.5f}, weights {digest.hexdigest()[:12]}")
