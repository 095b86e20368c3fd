import importlib.resources
import subprocess
import sys

import pytest

import regraft

PUBLIC = [
    "ClassChangedWarning",
    "CopyError",
    "Difference",
    "DifferenceError",
    "EditNotSavedWarning",
    "Fate",
    "GlobalReferenceWarning",
    "Graph",
    "Lineage",
    "MismatchError",
    "Node",
    "OutOfMemoryError",
    "OutputReport",
    "PrecisionError",
    "Proof",
    "Ref",
    "RegraftError",
    "ReplicaError",
    "Replicated",
    "Selection",
    "ShapeError",
    "SingleDeviceWarning",
    "UnsplitBatchWarning",
    "UsageError",
    "clone",
    "clone_model",
    "compare",
    "diff",
    "gather",
    "graph",
    "join",
    "lineage",
    "multi_gpu_model",
    "recipes",
    "register_copier",
    "replicate",
    "verify",
]


def test_all_is_exactly_the_public_names():
    assert regraft.__all__ == PUBLIC


def test_nothing_else_is_public():
    assert [name for name in dir(regraft) if not name.startswith("_")] == PUBLIC
    assert isinstance(regraft.__version__, str)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_documented(name):
    assert getattr(regraft, name).__doc__


def test_import_adds_no_framework_to_what_keras_imports():
    # Each backend's run of the tests checks its own backend.
    script = """
import sys
import keras
frameworks = {"flax", "jax", "tensorflow", "torch"}
before = frameworks & set(sys.modules)
import regraft
print(sorted(frameworks & set(sys.modules) - before))
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


def test_type_marker_is_packaged():
    assert importlib.resources.files("regraft").joinpath("py.typed").is_file()
