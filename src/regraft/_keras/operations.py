"""Operations that are no layers: what calls of `keras.ops` leave in a graph."""

from __future__ import annotations

import inspect
from typing import Any

from keras.src.layers.layer import Layer
from keras.src.ops.operation import Operation

__all__ = [
    "function_name",
    "is_made_with_defaults",
    "operation_name",
]


def operation_name(operation: Any) -> str | None:
    """Returns the name of the function of `keras.ops` that made an operation.

    It is written without underscores; None for all that is no such operation.
    """
    if not isinstance(operation, Operation) or isinstance(operation, Layer):
        return None
    kind = type(operation)
    return kind.__name__.lower() if _is_own(kind) else None


def function_name(function: Any) -> str | None:
    """Returns the name of a function of Keras, without underscores."""
    if isinstance(function, type) or not callable(function) or not _is_own(function):
        return None
    name = getattr(function, "__name__", None)
    return None if name is None else name.lower().replace("_", "")


def is_made_with_defaults(operation: Any) -> bool:
    """Tells whether an operation was made without arguments."""
    parameters = inspect.signature(type(operation).__init__).parameters
    wanted = {k: p.default for k, p in parameters.items() if k not in ("self", "name")}
    return all(getattr(operation, k, v) == v for k, v in wanted.items())


def _is_own(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).split(".")[0] == "keras"
