"""Parts of objects that are wanted before the walk comes to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
