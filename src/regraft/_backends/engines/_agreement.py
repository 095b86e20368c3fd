"""Processes that train one model together must have the same model and data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ... import _keras
from ..._errors import UsageError, explain


def digest_of_model(model: Any) -> bytes:
    """Returns 32 bytes that stand for all names, shapes and values of a model."""
    found = hashlib.sha256()
    for variable in _keras.variables_in_training(model):
        value = _keras.to_numpy(variable)
        found.update(f"{variable.path} {value.shape} {value.dtype}".encode())
        found.update(value.tobytes())
    return found.digest()


def digest_of_batch(arrays: Iterable[Any]) -> bytes:
    """Returns 32 bytes that stand for the shapes and values of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.digest()


def check_models(model: Any, digests: Sequence[bytes], rank: int) -> None:
    """Raises an error if the model of some process is another.

    Args:
        model: The model of this process.
        digests: The digests of all processes, in the order of their ranks.
        rank: The rank of this process.
    """
    others = _others(digests)
    if others:
        raise UsageError(
            explain(
                "The processes were given different models.",
                where=f"{model.name}, rank {rank} of {len(digests)}",
                expected="the same variables with the same values in every process",
                received=others,
                fix="build the model with the same seed everywhere "
                "(`keras.utils.set_random_seed`), or load the same file",
            )
        )


def check_batches(name: str, digests: Sequence[bytes], rank: int) -> None:
    """Raises an error if the batch of some process is another.

    Args:
        name: The name of the model.
        digests: The digests of all processes, in the order of their ranks.
        rank: The rank of this process.
    """
    others = _others(digests)
    if others:
        where = f"{name}, rank {rank} of {len(digests)}"
        raise UsageError(different_batches(where, others))


def different_batches(where: str, received: str) -> str:
    """Returns what is to be said of processes whose batches differ."""
    return explain(
        "The processes were given different batches.",
        where=where,
        expected="the same rows in the same order in every process",
        received=received,
        fix="pass the whole data everywhere: each process takes its rows by itself; "
        "shuffle with the same seed (`keras.utils.set_random_seed`) or pass "
        "`shuffle=False`",
    )


def _others(digests: Sequence[bytes]) -> str:
    ranks = [str(i) for i, other in enumerate(digests) if other != digests[0]]
    return f"others than on rank 0, on rank {', '.join(ranks)}" if ranks else ""
