"""What frameworks say of strategies that have none: a variable has one value."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def replicas(value: Any) -> tuple[Any, ...]:
    """Returns the value: a variable has one for all devices."""
    return (value,)


def whole(value: Any) -> Any:
    """Returns the value, of which there are no replicas."""
    return value


def scope_of(strategy: Any) -> AbstractContextManager[None]:
    """Nothing to do: there are no strategies."""
    return nullcontext()
