"""Processes that train one model must start from the same one."""

from __future__ import annotations

import hashlib
from typing import Any

from ... import _keras
from ..._errors import UsageError, explain


def digest(model: Any) -> bytes:
    """Returns a hash of all variables of a model and its optimizer."""
    optimizer = getattr(model, "optimizer", None)
    found = hashlib.sha256()
    for variable in [*model.variables, *(optimizer.variables if optimizer else ())]:
        value = _keras.to_numpy(variable)
        found.update(f"{variable.path} {value.dtype} {value.shape}".encode())
        found.update(value.tobytes())
    return found.digest()


def compare(model: Any, digests: list[bytes]) -> None:
    """Refuses a model that is not the same in every process.

    Args:
        model: The model of this process.
        digests: What `digest` says in each process.
    """
    others = [str(i) for i, found in enumerate(digests) if found != digests[0]]
    if others:
        raise UsageError(
            explain(
                "The workers do not start from the same model.",
                where=model.name,
                expected="the same variables, with the same values, on every worker",
                received="other variables or values than on worker 0 on worker "
                + ", ".join(others),
                fix="call `keras.utils.set_random_seed` with one seed before the "
                "model is built on each worker, or load it from one file",
            )
        )
