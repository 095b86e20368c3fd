"""What frameworks say whose variables hold numbers, and nothing else on them."""

from __future__ import annotations

from collections.abc import Container
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .._keras import to_numpy


def waiting_gradient(value: Any) -> Any:
    """Returns None: gradients are values of their own."""
    return None


def to_array(value: Any) -> Any:
    """Returns the numbers of a tensor."""
    return to_numpy(value)


def reset_modules(layer: Any, undrawn: Container[int]) -> list[Any]:
    """Returns nothing: there are no modules."""
    return []


def lasting() -> AbstractContextManager[Any]:
    """Nothing to do: any value can be trained."""
    return nullcontext()
