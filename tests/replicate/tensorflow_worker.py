"""One worker of a cluster: trains models and writes down what it got.

Run as `python -m replicate.tensorflow_worker FOLDER MODE MODEL...`, with `TF_CONFIG`.
"""

import json
import os
import pathlib
import signal
import sys

import tensorflow as tf

folder, mode, *names = sys.argv[1:]
worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
if mode == "some":
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, two)
if mode != "late":
    tf.distribute.MultiWorkerMirroredStrategy()

import keras
import numpy as np

import regraft

from .models import BUILDERS


class Dying(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if worker == 1 and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def state_of(model):
    variables = [*model.variables, *model.optimizer.variables]
    values = map(keras.ops.convert_to_numpy, variables)
    return {str(i): value for i, value in enumerate(values)}


def train(name):
    keras.utils.set_random_seed(worker if mode == "differ" else 0)
    build, x, y = BUILDERS[name]
    devices = ["cpu:1"] if mode == "some" else None
    many = regraft.replicate(build(), devices)
    sys.stdout.write(f"{many.devices} {many.replicas.describe()}\n")
    callbacks = [Dying()] if mode == "dying" else []
    if mode == "sharded":
        x, y = x[worker::2], y[worker::2]
    history = many.fit(
        x, y, batch_size=12, epochs=2, shuffle=False, verbose=0, callbacks=callbacks
    ).history
    found = {f"history/{key}": value for key, value in history.items()}
    found["predicted"] = many.predict(x, batch_size=12, verbose=0)
    found |= state_of(regraft.gather(many))
    target = pathlib.Path(folder, str(worker))
    many.save(target / f"{name}.keras")
    many.save_weights(target / f"{name}.weights.h5")
    np.savez(target / f"{name}.npz", **found)


for each in names:
    train(each)
sys.stdout.write("done\n")
