"""What is simple: nothing in it has to be copied, so nothing need be put off."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from .._atoms import ATOMS, NAMES
from .._identity import may_be_id, may_hold_ids


def are_atoms(parts: Collection[Any]) -> bool:
    """Tells whether both models can share all parts, none of which may be an id."""
    kinds = set(map(type, parts))
    return kinds <= ATOMS and not (int in kinds and may_hold_ids(parts))


def are_names(parts: Iterable[Any]) -> bool:
    """Tells whether all parts are plain strings, the same in both models."""
    return NAMES.issuperset(map(type, parts))


def needs_hash(key: Any) -> bool:
    """Tells whether the copy of a key has another hash."""
    return type(key) not in ATOMS or may_be_id(key)


def is_simple_list(content: Any) -> bool:
    """Tells whether a list holds nothing but atoms."""
    return are_atoms(list.__getitem__(content, slice(None)))


def is_simple_dict(content: Any) -> bool:
    """Tells whether a dict holds nothing but atoms, and tuples of them."""
    values, keys = dict.values(content), dict.keys(content)
    kinds = set(map(type, values))
    if not kinds <= _SIMPLE or (int in kinds and may_hold_ids(values)):
        return False
    if tuple in kinds and not all(are_atoms(x) for x in values if type(x) is tuple):
        return False
    return are_names(keys) or not any(map(needs_hash, keys))


def is_simple_set(content: Any) -> bool:
    """Tells whether a set holds nothing but atoms."""
    return not any(map(needs_hash, set.__iter__(content)))


_SIMPLE = ATOMS | {tuple}
