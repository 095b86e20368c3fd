"""Containers on Keras's objects, which TensorFlow wraps to save what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .._identity import address

# Where TensorFlow notes what an object saves: references, and parts by name.
CHECKPOINT_PARTS = (
    "_self_unconditional_checkpoint_dependencies",
    "_self_unconditional_dependency_names",
)


def containers(values: Iterable[Any]) -> Iterator[Any]:
    """Yields the lists, tuples, dicts and sets among values, and those inside them."""
    seen: set[int] = set()
    stack = list(values)
    while stack:
        found = stack.pop()
        if not isinstance(found, dict | list | tuple | set):
            continue
        plain = plain_container(found)
        if address(plain) not in seen:
            seen.add(address(plain))
            if not isinstance(plain, set):
                stack.extend(plain.values() if isinstance(plain, dict) else plain)
            yield found


def plain_container(held: Any) -> Any:
    """Returns the container behind the wrapper that TensorFlow puts around it."""
    if isinstance(held, list):
        return getattr(held, "_storage", held) if _is_wrapper(held) else held
    return getattr(held, "__wrapped__", held)


def _is_wrapper(held: Any) -> bool:
    return hasattr(held, "_update_snapshot")


def refill(held: Any, items: Any) -> None:
    """Puts other items into a list or a dict.

    TensorFlow's wrapper saves what came in at its end and nothing else, so it has to
    forget what it held before.
    """
    plain = plain_container(held)
    plain.clear()
    if plain is not held:
        for name in CHECKPOINT_PARTS:
            getattr(held, name, []).clear()
        held._update_snapshot()
    if isinstance(plain, dict):
        held.update(items)
    else:
        held.extend(items)
