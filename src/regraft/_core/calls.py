"""Calls of layers: the containers in a call belong to it alone."""

from __future__ import annotations

from typing import Any

from .._atoms import ATOMS
from .simple import is_simple_dict

_attributes = object.__getattribute__


def fill_owned(walk: Any, obj: Any, new: Any, inner: str | None) -> None:
    """Gives a shell copies of attributes whose containers nobody else holds.

    They need not be remembered, nor put off, which most of the time would go into.

    Args:
        walk: The walk.
        obj: An object that is nothing but a dict of attributes.
        new: Its copy, an empty shell.
        inner: The name of an attribute that holds another such object, or None.
    """
    state = dict.copy(_attributes(obj, "__dict__"))
    for name, value in state.items():
        if name == inner:
            state[name] = object.__new__(type(value))
            fill_owned(walk, value, state[name], None)
        else:
            state[name] = _own_copy(walk, value)
    object.__setattr__(new, "__dict__", state)


def _own_copy(walk: Any, value: Any) -> Any:
    """Copies what one object holds; what is nested in a tuple may be held by others."""
    kind = type(value)
    if kind is list:
        return walk.copies_of(value)
    if kind is tuple and not any(type(item) is tuple for item in value):
        return tuple(map(walk.copy_of, value))
    if kind is dict and is_simple_dict(value):
        return dict.copy(value)
    return value if kind in ATOMS else walk.copy_of(value)
