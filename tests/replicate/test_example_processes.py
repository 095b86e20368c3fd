"""`examples/04_several_processes`: one script, one process or two."""

import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

from .processes import free_port

SCRIPT = pathlib.Path(__file__).parents[2] / "examples/04_several_processes/train.py"
PATHS = os.pathsep.join(path for path in sys.path if path)
QUIET = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": ""}
PRINTED = re.compile(r"loss (\S+), weights (\S+)")


def start(folder, *, by=(), **env):
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", *by, str(SCRIPT)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PATHS, **QUIET, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def two_jax_processes(folder):
    shared = {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{free_port()}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
    }
    return [
        start(folder / str(i), KERAS_DISTRIBUTION_PROCESS_ID=str(i), **shared)
        for i in (0, 1)
    ]


def two_torch_processes(folder):
    port = str(free_port())
    by = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port)
    return [start(folder / "0", by=by)]


def two_tensorflow_workers(folder):
    workers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    configs = [
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}}
        for i in (0, 1)
    ]
    return [
        start(folder / str(i), TF_CONFIG=json.dumps(config))
        for i, config in enumerate(configs)
    ]


STARTS = {
    "jax": two_jax_processes,
    "torch": two_torch_processes,
    "tensorflow": two_tensorflow_workers,
}


def test_two_processes_print_what_one_prints(tmp_path):
    jobs = [start(tmp_path / "one"), *STARTS[keras.backend.backend()](tmp_path)]
    try:
        outputs = [job.communicate(timeout=300)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    for job, output in zip(jobs, outputs, strict=True):
        assert job.returncode == 0, output[-3000:]
    [(one_loss, _)] = PRINTED.findall(outputs[0])
    first, second = PRINTED.findall("".join(outputs[1:]))
    assert first == second
    assert first[0] == one_loss
    keras.models.load_model(tmp_path / "0" / "last.keras")
    assert not (tmp_path / "1" / "last.keras").exists()


def test_the_commands_name_the_script():
    text = (SCRIPT.parent / "README.md").read_text(encoding="utf-8")
    assert text.count(SCRIPT.name) >= 6


@pytest.mark.parametrize("variable", ["TF_CONFIG", "KERAS_DISTRIBUTION_NUM_PROCESSES"])
def test_the_commands_set_what_the_script_reads(variable):
    assert variable in (SCRIPT.parent / "README.md").read_text(encoding="utf-8")
    assert variable in SCRIPT.read_text(encoding="utf-8")
