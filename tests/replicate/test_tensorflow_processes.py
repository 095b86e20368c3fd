"""Several workers on the loopback train as one process does."""

import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from .models import BUILDERS

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="workers of TensorFlow"
)
TESTS = pathlib.Path(__file__).parents[1]
FLOAT32 = {"rtol": 2e-4, "atol": 2e-5}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(folder, mode, *names):
    """Starts two workers; returns the processes."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    workers = []
    for index in range(2):
        (folder / str(index)).mkdir(parents=True)
        task = {"type": "worker", "index": index}
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)]),
        }
        command = [sys.executable, "-m", "replicate.tensorflow_worker"]
        workers.append(
            subprocess.Popen(
                [*command, str(folder), mode, *names],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return workers


def finish(workers, timeout=240):
    """Returns code, output and errors of each worker."""
    try:
        ends = [worker.communicate(timeout=timeout) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    pairs = zip(workers, ends, strict=True)
    return [(worker.returncode, *end) for worker, end in pairs]


def trained_here(name):
    keras.utils.set_random_seed(0)
    build, x, y = BUILDERS[name]
    model = build()
    history = model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0).history
    found = {f"history/{key}": value for key, value in history.items()}
    found["predicted"] = model.predict(x, batch_size=12, verbose=0)
    # By number: names go on counting in a process that has made models before.
    variables = [*model.variables, *model.optimizer.variables]
    for number, variable in enumerate(variables):
        found[str(number)] = keras.ops.convert_to_numpy(variable)
    return found


def test_two_workers_train_as_one_process_does(tmp_path):
    names = ["cnn", "masked_lstm", "sequential"]
    for code, out, err in finish(start(tmp_path, "train", *names)):
        assert code == 0, err[-3000:]
        assert "('worker:0/cpu:0', 'worker:1/cpu:0')" in out
        assert "MultiWorkerMirroredStrategy on 2 devices of 2 workers" in out
    for name in names:
        files = [tmp_path / str(i) / f"{name}.npz" for i in range(2)]
        first, second = (dict(np.load(file)) for file in files)
        hashes = [
            hashlib.sha256(b"".join(v.tobytes() for v in found.values())).hexdigest()
            for found in (first, second)
        ]
        assert hashes[0] == hashes[1], name
        expected = trained_here(name)
        assert expected.keys() == first.keys()
        for path, value in expected.items():
            np.testing.assert_allclose(
                first[path], value, err_msg=f"{name} {path}", **FLOAT32
            )
        for suffix in ("keras", "weights.h5"):
            assert (tmp_path / "0" / f"{name}.{suffix}").exists()
            assert not (tmp_path / "1" / f"{name}.{suffix}").exists()


def test_workers_that_start_from_different_models_are_refused(tmp_path):
    for code, _, err in finish(start(tmp_path, "differ", "sequential")):
        assert code != 0
        assert "UsageError: The processes were given different models." in err
        assert "received: others than on rank 0, on rank 1" in err


def test_workers_that_shard_the_data_themselves_are_refused(tmp_path):
    for code, _, err in finish(start(tmp_path, "sharded", "sequential")):
        assert code != 0
        assert "The processes were given different batches." in err
        assert "each process takes its rows by itself" in err


def test_a_worker_that_dies_ends_the_other_one(tmp_path):
    began = time.monotonic()
    first, second = finish(start(tmp_path, "dying", "sequential"))
    assert second[0] != 0
    assert first[0] != 0
    assert "done" not in first[1]
    assert "task:1" in first[2]  # TensorFlow names who is missing.
    assert time.monotonic() - began < 200


def test_workers_take_part_with_all_their_devices(tmp_path):
    for code, _, err in finish(start(tmp_path, "some", "sequential")):
        assert code != 0
        assert "Several workers take part with all their devices." in err
        assert "received: cpu:1" in err


def test_a_program_that_did_not_join_the_cluster_is_told_how(tmp_path):
    for code, _, err in finish(start(tmp_path, "late", "sequential")):
        assert code != 0
        assert "TensorFlow has not joined the cluster of workers." in err
        assert "`tf.distribute.MultiWorkerMirroredStrategy()` in the first" in err
