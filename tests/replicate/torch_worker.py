"""What each of several processes runs for `test_torch_processes`."""

import os
import pathlib
import sys

import keras
import numpy as np
from keras import layers

if __name__ == "__main__":
    import models
else:
    from . import models

import regraft


def unused_output():
    """One output has no loss; regularizers, added losses, statistics under a mask."""
    x = keras.Input((7,), dtype="int32")
    h = layers.Embedding(9, 4, mask_zero=True, activity_regularizer="l2")(x)
    h = layers.BatchNormalization(momentum=0.5)(h)
    h = layers.LSTM(3, kernel_regularizer="l2")(h)
    first = layers.Dense(2, name="first")(h)
    second = layers.Dense(2, name="second")(h)
    third = layers.Dense(2, name="third", kernel_regularizer="l2")(h)
    model = keras.Model(x, [first, second, third])
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9, weight_decay=0.1),
        ["mse", None, None],
    )
    return model


BUILDERS = {
    **{name: models.BUILDERS[name] for name in ("cnn", "masked_lstm", "sequential")},
    "own_train_step": models.BUILDERS["own_train_step"],
    "unused_output": (unused_output, models.TOKENS, models.VALUES),
}


def run(name, replicate):
    """Trains, evaluates and predicts; returns all numbers."""
    build, x, y = BUILDERS[name]
    keras.utils.set_random_seed(0)
    model = replicate(build())
    history = model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0).history
    model.train_on_batch(x[:1], y[:1])  # A row for rank 0 alone.
    found = {f"history {key}": np.array(value) for key, value in history.items()}
    found["evaluate"] = np.array(model.evaluate(x, y, batch_size=7, verbose=0))
    predicted = keras.tree.flatten(model.predict(x, batch_size=7, verbose=0))
    found |= {f"predict {i}": value for i, value in enumerate(predicted)}
    for v in [*model.variables, *model.optimizer.variables]:
        found[f"variable {v.path}"] = v.numpy()
    return model, found


def train(folder, rank):
    for name in BUILDERS:
        many, found = run(name, regraft.replicate)
        np.savez(f"{folder}/{name}-{rank}.npz", **found)
        if name == "cnn":
            many.save(f"{folder}/{name}-{rank}.keras")
    keras.utils.set_random_seed(1)
    drops = keras.Sequential([keras.Input((50,)), layers.Dropout(0.5)])
    many = regraft.replicate(drops)
    np.save(f"{folder}/drops-{rank}.npy", many(np.ones((2, 50)), training=True).numpy())
    pathlib.Path(f"{folder}/engine-{rank}.txt").write_text(str(many.placement()))


def die(folder, rank):
    build, x, y = BUILDERS["cnn"]
    many = regraft.replicate(build())

    class Dying(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if rank == 1 and batch == 1:
                os._exit(7)

    many.fit(x, y, batch_size=6, epochs=3, shuffle=False, callbacks=[Dying()])


class Parting(layers.Layer):
    """Assigns another variable in each process."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.states = [
            self.add_weight(shape=(), name=name, trainable=False) for name in "ab"
        ]

    def call(self, x):
        self.states[int(os.environ["RANK"])].assign(1.0)
        return x


def differing_models(rank):
    keras.utils.set_random_seed(rank)
    regraft.replicate(models.BUILDERS["cnn"][0]())


def differing_batches(rank):
    build, x, y = BUILDERS["sequential"]
    many = regraft.replicate(build())
    keras.utils.set_random_seed(rank)
    many.fit(x, y, batch_size=6, verbose=0)


def differing_targets(rank):
    build, x, y = BUILDERS["sequential"]
    regraft.replicate(build()).train_on_batch(x[:6], y[:6] + rank)


def differing_weights(rank):
    build, x, y = BUILDERS["sequential"]
    weights = np.ones(6) + rank
    regraft.replicate(build()).test_on_batch(x[:6], y[:6], sample_weight=weights)


def several_devices(rank):
    regraft.replicate(models.BUILDERS["cnn"][0](), ["cpu:0"] * 2)


def differing_state(rank):
    model = keras.Sequential([keras.Input((5,)), Parting()])
    with keras.device("cpu"):
        regraft.replicate(model).predict(models.TABLE, verbose=0)


def differing_outputs(rank):
    x = keras.Input((5,))
    model = keras.Model(x, layers.Lambda(keras.ops.mean, output_shape=())(x))
    regraft.replicate(model)(models.TABLE)


REFUSALS = (
    differing_models,
    differing_batches,
    differing_targets,
    differing_weights,
    several_devices,
    differing_state,
    differing_outputs,
)


def refuse(folder, rank):
    for attempt in REFUSALS:
        keras.utils.set_random_seed(0)
        try:
            attempt(rank)
        except regraft.RegraftError as error:
            text = f"{type(error).__name__}: {error}"
            pathlib.Path(f"{folder}/{attempt.__name__}-{rank}.txt").write_text(text)


if __name__ == "__main__":
    task, folder = sys.argv[1:]
    keras.utils.set_random_seed(0)
    globals()[task](folder, int(os.environ["RANK"]))
