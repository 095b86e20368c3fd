"""Structures of arguments: `keras.tree`, fast for those that are mostly met."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import keras

from .classes import KerasTensor

_LEAVES = frozenset({KerasTensor, type(None), bool, int, float, str})
_more_leaves: weakref.WeakSet[type] = weakref.WeakSet()


def _is_leaf(x: Any) -> bool:
    kind = type(x)
    if kind in _more_leaves:
        return True
    if keras.tree.is_nested(x):
        return False
    _more_leaves.add(kind)
    return True


def leaves(struct: Any) -> list[Any]:
    """Returns what `keras.tree.flatten` does, also if keys have no order."""
    found: list[Any] = []
    stack = [struct]
    while stack:
        x = stack.pop()
        kind = type(x)
        if kind in _LEAVES:
            found.append(x)
        elif kind is tuple or kind is list:
            stack += reversed(x)
        elif kind is dict:
            stack += [x[name] for name in reversed(_in_order(x))]
        elif _is_leaf(x):
            found.append(x)
        else:
            try:
                found += keras.tree.flatten(x)
            except TypeError:  # It sorts keys.
                stack += reversed(list(x.values() if isinstance(x, dict) else x))
    return found


def _in_order(struct: dict[Any, Any]) -> list[Any]:
    """Returns the keys of a dict, sorted unless they have no order."""
    try:
        return sorted(struct)
    except TypeError:
        return list(struct)


def map_leaves(function: Callable[[Any], Any], struct: Any) -> Any:
    """Returns what `keras.tree.map_structure` does."""
    kind = type(struct)
    if kind in _LEAVES:
        return function(struct)
    if kind is tuple or kind is list:
        return kind([map_leaves(function, x) for x in struct])
    if kind is dict:
        return {name: map_leaves(function, x) for name, x in struct.items()}
    if _is_leaf(struct):
        return function(struct)
    return keras.tree.map_structure(function, struct)


def same_structure(one: Any, other: Any) -> bool:
    """Tells whether two structures differ in nothing but their leaves."""
    try:
        keras.tree.assert_same_structure(one, other)
    except (TypeError, ValueError):
        return False
    return True
