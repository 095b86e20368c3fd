"""By which number an object is known again, on old and new Pythons."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import regraft
from regraft._identity import address, address_by_id, new_id

SOURCE = Path(regraft.__file__).parent
TESTS = Path(__file__).parent

# Runs tests as on the other side of the Python version that decides.
OTHERWISE = """
import sys, keras, pytest
real = sys.version_info
sys.version_info = (3, 11) if real >= (3, 12) else (3, 12)
from regraft._identity import address
sys.version_info = real
assert (address is id) == (real >= (3, 12))
sys.exit(pytest.main(sys.argv[1:]))
"""


def objects():
    yield from (None, int, len, keras, (), "text", 7, 2.5, [], {}, {1}, object())
    yield from (address, keras.layers.Dense(1), keras.Input((2,)), np.ones(3))
    yield from [[] for _ in range(1000)]


def test_a_number_for_each_object():
    living = list(objects())
    numbers = [address(x) for x in living]
    assert len(set(numbers)) == len(living)
    assert [address_by_id(id(x)) for x in living] == numbers


def test_the_id_of_a_copy():
    old, new = [1], [2]
    memo = {address(old): new}
    assert new_id(id(old), memo) == id(new)
    assert new_id(id(new), memo) == id(new)
    assert new_id(5, memo) == 5


@pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the same on every backend"
)
def test_both_numbers_serve():
    tests = ["test_walk.py", "test_diff_values.py", "graph/test_build.py"]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-W", "ignore"]
    done = subprocess.run(
        [sys.executable, "-c", OTHERWISE, *options, *(str(TESTS / t) for t in tests)],
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_ids_are_asked_for_only_where_others_have_asked_before():
    """What Keras keeps by id, and what knows nothing of the walk, may ask for ids."""
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and node.id == "id"
    }
    beside = {x for x in found if x.startswith(("recipes/", "_backends/engines/"))}
    assert found - beside == {
        "_core/layers.py",
        "_identity.py",
        "_keras/graph.py",
        "_keras/layers.py",
        "_keras/optimizers.py",
    }
