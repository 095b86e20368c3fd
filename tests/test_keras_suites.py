"""Keras's own tests, which ship in its wheel, with our `clone_model` swapped in.

Each file runs in a process of its own, on the active backend, with the plugin
`support/swap_clone_model.py`: it puts our function in the place of Keras's before
the tests are collected, and clones every model that a test made.
"""

import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

TESTS = pathlib.Path(__file__).parent
SUITES = pathlib.Path(keras.__file__).parent / "src" / "models"
BACKEND = keras.backend.backend()

# The least that must pass, and how often `clone_model` must have been called.
EXPECTED = {
    "cloning_test.py": (17, 100),
    "functional_test.py": (38, 100),
    "sequential_test.py": (18, 100),
    "model_test.py": (60, 100),
}

# Tests that fail with stock Keras too, in this environment: (file, backend) to
# {name: reason}.
FAIL_WITHOUT_US: dict[tuple[str, str], dict[str, str]] = {}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_suite(name, tmp_path):
    if not (SUITES / name).exists():
        pytest.skip(f"this wheel of Keras {keras.__version__} has no {name}")
    known = FAIL_WITHOUT_US.get((name, BACKEND), {})
    # A configuration of its own: where the environment lies inside this checkout,
    # pytest would take ours, which forbids the markers of Keras's tests.
    config = tmp_path / "pytest.ini"
    config.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-c", str(config), "--rootdir", str(tmp_path)]
    command += ["-p", "swap_clone_model", "-W", "ignore", "--tb=short", "-rf"]
    command += [f"--deselect={SUITES / name}::{test}" for test in known]
    paths = [str(TESTS / "support"), *sys.path]
    run = subprocess.run(
        [*command, str(SUITES / name)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    report = f"{run.stdout[-6000:]}\n{run.stderr[-2000:]}"
    assert run.returncode == 0, report
    passed, calls = EXPECTED[name]
    assert int(re.search(r"(\d+) passed", run.stdout)[1]) >= passed, report
    found = re.search(r"clone_model was called (\d+) times", run.stdout)
    assert int(found[1]) >= calls, report
