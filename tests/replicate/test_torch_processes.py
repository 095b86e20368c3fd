"""Replicas in several processes on torch: the same numbers, and bounded failures."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

import regraft

if keras.backend.backend() != "torch":
    pytest.skip("the torch engine", allow_module_level=True)

from . import torch_worker
from .test_training import FLOAT32

pytestmark = pytest.mark.slow
WORKER = Path(torch_worker.__file__)
SOURCES = Path(regraft.__file__).parents[1]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(**more):
    path = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    given = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "REGRAFT_TIMEOUT": "60"}
    return {**os.environ, **given, **more}


def start_alone(task, folder, size=2):
    """Starts processes that nobody watches, unlike those of `torchrun`."""
    port = str(free_port())
    return [
        subprocess.Popen(
            [sys.executable, str(WORKER), task, str(folder)],
            env=environment(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(size),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def ends(processes):
    """Returns exit codes and messages; kills what does not end."""
    try:
        texts = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(p.returncode, "".join(t)) for p, t in zip(processes, texts, strict=True)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What two processes that `torchrun` started have written."""
    folder = tmp_path_factory.mktemp("trained")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nproc-per-node", "2", "--master-addr", "127.0.0.1"),
            *("--master-port", str(free_port()), str(WORKER), "train", str(folder)),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in (0, 1):
        text = (folder / f"engine-{rank}.txt").read_text()
        assert "torch.distributed, 2 processes: cpu:0, cpu:0" in text
    return folder


@pytest.mark.parametrize("name", torch_worker.BUILDERS)
def test_two_processes_give_the_numbers_of_one(trained, name):
    _, expected = torch_worker.run(name, lambda model: model)
    first, second = (np.load(trained / f"{name}-{rank}.npz") for rank in (0, 1))
    assert set(first) == set(second) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(first[key], second[key], err_msg=key)
        np.testing.assert_allclose(first[key], value, err_msg=key, **FLOAT32)


def test_only_rank_0_writes_files(trained):
    model = keras.models.load_model(trained / "cnn-0.keras")
    written = np.load(trained / "cnn-0.npz")
    for variable in model.variables:
        np.testing.assert_array_equal(
            variable.numpy(), written[f"variable {variable.path}"]
        )
    assert not (trained / "cnn-1.keras").exists()


def test_processes_draw_different_numbers(trained):
    drops = np.load(trained / "drops-0.npy")
    np.testing.assert_array_equal(drops, np.load(trained / "drops-1.npy"))
    assert (drops[0] != drops[1]).any()


def test_a_process_that_dies_ends_the_others(tmp_path):
    start = time.monotonic()
    (code, text), (other, _) = ends(start_alone("die", tmp_path))
    assert other == 7
    assert code == 1, text
    assert "ReplicaError" in text
    assert "Rank 0 lost contact with rank 1." in text
    assert time.monotonic() - start < 120


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    for code, text in ends(start_alone("refuse", folder)):
        assert code == 0, text
    return folder


@pytest.mark.parametrize(
    ("task", "texts"),
    [
        (
            "differing_models",
            (
                "UsageError: The processes were given different models.",
                "received: others than on rank 0, on rank 1",
                "set_random_seed",
            ),
        ),
        (
            "differing_batches",
            ("The processes were given different batches.", "set_random_seed"),
        ),
        ("differing_targets", ("The processes were given different batches.",)),
        ("differing_weights", ("The processes were given different batches.",)),
        (
            "several_devices",
            (
                "UsageError: Of several processes, each runs one replica on one",
                "received: devices cpu:0, cpu:0, relocate None",
            ),
        ),
        ("differing_state", ("The processes do not compute the same things.",)),
        (
            "differing_outputs",
            ("An output of a replicated model has no rows", "differ by process"),
        ),
    ],
)
def test_what_differs_is_refused_in_every_process(refused, task, texts):
    for rank in (0, 1):
        found = (refused / f"{task}-{rank}.txt").read_text()
        for text in texts:
            assert text in found


@pytest.mark.parametrize("given", ["soon", "-1", "0"])
def test_a_wrong_time_to_wait_is_refused(monkeypatch, given):
    from regraft._backends.engines.torch.collectives import seconds_to_wait

    monkeypatch.setenv("REGRAFT_TIMEOUT", given)
    with pytest.raises(
        regraft.UsageError, match="must be a number of seconds"
    ) as error:
        seconds_to_wait()
    assert f"received: {given!r}" in str(error.value)
