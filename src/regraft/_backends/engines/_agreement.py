"""Processes that train one model together must begin with the same one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ..._errors import UsageError, explain


def digest(model: Any) -> bytes:
    """Returns 32 bytes that stand for all names, shapes and values of a model."""
    optimizer = getattr(model, "optimizer", None)
    found = hashlib.sha256()
    for variable in [*model.variables, *(optimizer.variables if optimizer else ())]:
        value = np.asarray(keras.ops.convert_to_numpy(variable))
        found.update(f"{variable.path} {value.shape} {value.dtype}".encode())
        found.update(value.tobytes())
    return found.digest()


def check_agreement(model: Any, digests: Sequence[bytes], process: int) -> None:
    """Raises an error if the model of some process is another.

    Args:
        model: The model of this process.
        digests: The digests of all processes, in the order of their ranks.
        process: The rank of this process.
    """
    others = [i for i, other in enumerate(digests) if other != digests[0]]
    if not others:
        return
    ranks = ", ".join(map(str, others))
    raise UsageError(
        explain(
            "The processes were given different models.",
            where=f"{model.name}, in process {process} of {len(digests)}",
            expected="the same variables with the same values in every process",
            received=f"others than in process 0, in process {ranks}",
            fix="build the model with the same seed everywhere "
            "(`keras.utils.set_random_seed`), or load the same file",
        )
    )
