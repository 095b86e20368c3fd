"""Parts of objects that are wanted before the walk comes to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._atoms import ATOMS
from .._identity import address
from .._parts import is_model_state, parts
from .choice import is_plain


def plain_parts(walk: Any, roots: Iterable[Any]) -> Iterator[Any]:
    """Yields objects and what they hold, each once, down to the pieces of a model.

    What says itself how it is copied is not looked into.

    Args:
        walk: The walk that copies them.
        roots: Where to start.
    """
    stack, seen = [*roots], set[int]()
    while stack:
        part = stack.pop()
        if type(part) in ATOMS or address(part) in seen or not is_plain(part):
            continue
        seen.add(address(walk.hold(part)))  # It may have been made on the fly.
        yield part
        if not is_model_state(part):
            stack += [inner for _, inner in parts(part)]


# An object, what completes its copy, and the parts that are looked into by then.
Waiting = tuple[Any, Callable[[], None], list[Any]]


def in_order(waiting: list[Waiting]) -> Iterator[Callable[[], None]]:
    """Yields actions that complete copies, those of parts before their owners."""
    entries: dict[int, list[Waiting]] = {}
    for entry in waiting:
        entries.setdefault(address(entry[0]), []).append(entry)
    stack = [(obj, False) for obj, _, _ in reversed(waiting)]
    seen: dict[int, Any] = {}  # Holds what was made on the fly.
    while stack:
        obj, is_ready = stack.pop()
        mine = entries.get(address(obj), [])
        if is_ready:
            yield from (action for _, action, _ in mine)
        elif type(obj) not in ATOMS and address(obj) not in seen:
            seen[address(obj)] = obj
            inside = [part for entry in mine for part in entry[2]]
            if mine:
                stack.append((obj, True))
            elif is_plain(obj) and not is_model_state(obj):
                inside = [part for _, part in parts(obj)]
            stack += [(part, False) for part in inside]
