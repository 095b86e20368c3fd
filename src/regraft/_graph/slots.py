"""Slots, the names of tensors in a scope, and structures of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras

from .. import _keras


@dataclass(frozen=True)
class Slot:
    """One tensor of a scope: an output of a call."""

    call: int
    output: int = 0


def slots_in(struct: Any) -> tuple[Slot, ...]:
    """Returns the slots in a structure."""
    return tuple(x for x in _keras.leaves(struct) if isinstance(x, Slot))


def put(struct: Any, moved: Mapping[Slot, Any]) -> Any:
    """Returns a structure with other things in place of some slots."""

    def new(x: Any) -> Any:
        return moved.get(x, x) if isinstance(x, Slot) else x

    return _keras.map_leaves(new, struct)


def same(one: Any, other: Any) -> bool:
    """Tells whether two structures hold equal slots and the same objects."""
    if not _keras.same_structure(one, other):
        return False
    pairs = zip(keras.tree.flatten(one), keras.tree.flatten(other), strict=True)
    return all(_same_leaf(a, b) for a, b in pairs)


def _same_leaf(one: Any, other: Any) -> bool:
    if one is other:
        return True
    plain = (Slot, str, int, float, bool)
    return type(one) is type(other) and isinstance(one, plain) and one == other
