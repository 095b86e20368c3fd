"""Two JAX processes train one model."""

import keras
import numpy as np
import pytest

import regraft

from .models import BUILDERS
from .processes import free_port, run_together
from .test_training import FLOAT32, numbers, train

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX")

NAMES = ("cnn", "masked_lstm", "sequential")

START = """
import os, pathlib, sys
rank, port, folder = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
import jax
jax.distributed.initialize(
    f"127.0.0.1:{port}", 2, rank, heartbeat_timeout_seconds=10
)
import keras, numpy as np
import regraft
from replicate.models import BUILDERS
from replicate.test_training import numbers, train
"""

TRAIN = (
    START
    + """
for name in sys.argv[4:]:
    keras.utils.set_random_seed(0)
    build, x, y = BUILDERS[name]
    many = regraft.replicate(build())
    losses = train(many, x, y)["loss"]
    (folder / str(rank)).mkdir(exist_ok=True)
    many.save(folder / str(rank) / f"{name}.keras")
    answers = many.predict(x, batch_size=12, verbose=0)
    found = numbers(regraft.gather(many))
    np.savez(folder / f"{name}{rank}.npz", losses=losses, answers=answers, **found)
print(many.replicas.describe())
"""
)

DIE = (
    START
    + """
class Dying(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if rank == 1 and epoch == 2:
            os._exit(9)

build, x, y = BUILDERS["sequential"]
keras.utils.set_random_seed(0)
many = regraft.replicate(build())
checkpoint = keras.callbacks.ModelCheckpoint(folder / "last.keras")
many.fit(x, y, epochs=1000, verbose=0, callbacks=[checkpoint, Dying()])
print("went on")
"""
)

DIFFER = (
    START
    + """
build, x, y = BUILDERS["sequential"]
keras.utils.set_random_seed(rank)
try:
    regraft.replicate(build())
except regraft.UsageError as error:
    print(error)
keras.utils.set_random_seed(0)
try:
    regraft.replicate(build(), 1)
except regraft.UsageError as error:
    print(error)
many = regraft.replicate(build())
try:
    many.fit(x[rank:], y[rank:], verbose=0, shuffle=False)
except regraft.UsageError as error:
    print(error)
"""
)


def start(script, folder, *arguments):
    port = free_port()
    given = [(rank, port, folder, *arguments) for rank in (0, 1)]
    flags = "--xla_force_host_platform_device_count=2"
    return run_together(script, given, env={"XLA_FLAGS": flags})


def test_two_processes_end_with_the_weights_of_one(tmp_path):
    results = start(TRAIN, tmp_path, *NAMES)
    for status, output, _ in results:
        assert status == 0, output[-3000:]
        assert "4 device(s) of 2 processes" in output
    for name in NAMES:
        first, second = (np.load(tmp_path / f"{name}{rank}.npz") for rank in (0, 1))
        for key in first.files:  # Not a bit differs between the ranks.
            np.testing.assert_array_equal(first[key], second[key], err_msg=key)
        keras.utils.set_random_seed(0)
        build, x, y = BUILDERS[name]
        one = build()
        losses = train(one, x, y)["loss"]
        np.testing.assert_allclose(first["losses"], losses, **FLOAT32)
        for path, value in numbers(one).items():
            np.testing.assert_allclose(first[path], value, err_msg=path, **FLOAT32)
        assert (tmp_path / "0" / f"{name}.keras").exists()
        assert not (tmp_path / "1" / f"{name}.keras").exists()
        loaded = keras.models.load_model(tmp_path / "0" / f"{name}.keras")
        for left, right in zip(loaded.weights, one.weights, strict=True):
            np.testing.assert_allclose(left.numpy(), right.numpy(), **FLOAT32)


def test_a_process_that_dies_ends_the_other_one(tmp_path):
    (status, output, seconds), _ = start(DIE, tmp_path)
    assert status != 0
    assert "went on" not in output
    assert "tasks are unhealthy" in output or "task died" in output
    assert seconds < 120
    keras.models.load_model(tmp_path / "last.keras")  # It is whole.


def test_processes_with_different_models_or_data_are_told(tmp_path):
    for rank, (status, output, _) in enumerate(start(DIFFER, tmp_path)):
        assert status == 0, output[-3000:]
        assert "The processes were given different models." in output
        assert "The processes were given different batches." in output
        assert "A process has none of the devices." in output
        assert "none of process 1" in output
        assert output.count(f"where: sequential, rank {rank} of 2") == 2
        assert output.count("received: others than on rank 0, on rank 1") == 2


EIGHT = """
import keras
import regraft
from replicate.models import BUILDERS
from replicate.test_training import assert_close, numbers, train
build, x, y = BUILDERS["cnn"]
model = build()
one, many = regraft.clone(model), regraft.replicate(model)
assert many.devices == tuple(f"cpu:{i}" for i in range(8))
assert_close(train(one, x[:24], y[:24]), train(many, x[:24], y[:24]))
assert_close(numbers(one), numbers(regraft.gather(many)))
print("eight")
"""


def test_eight_devices_of_one_process():
    flags = "--xla_force_host_platform_device_count=8"
    [(status, output, _)] = run_together(EIGHT, [()], env={"XLA_FLAGS": flags})
    assert status == 0, output[-3000:]
    assert "eight" in output


def test_one_process_needs_no_agreement():
    model = BUILDERS["sequential"][0]()
    assert "processes" not in regraft.replicate(model, 2).replicas.describe()
