"""Makers of weak references and of containers that hold their items weakly."""

from __future__ import annotations

import weakref
from typing import Any

from .base import Maker


def _make_reference(walk: Any, obj: Any) -> Any:
    return walk.note_reference(obj)


def _make_weak_set(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, type(obj)())
    members = list(obj)
    walk.hash_later(lambda: new.update(walk.stand_in(m) for m in members))
    return new


def _make_weak_keys(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, type(obj)())
    items = [(k, walk.copy_of(v)) for k, v in obj.items()]
    walk.hash_later(lambda: new.update({walk.stand_in(k): v for k, v in items}))
    return new


def _make_weak_values(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, type(obj)())
    items = [(walk.copy_of(k), v) for k, v in obj.items()]
    walk.hash_later(lambda: new.update({k: walk.stand_in(v) for k, v in items}))
    return new


MAKERS: dict[type, Maker] = {
    weakref.ref: _make_reference,
    weakref.WeakSet: _make_weak_set,
    weakref.WeakKeyDictionary: _make_weak_keys,
    weakref.WeakValueDictionary: _make_weak_values,
}
