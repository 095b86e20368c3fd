"""Makers of weak references and of containers that hold their items weakly."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

from .. import _functions
from .base import Maker, refuse
from .instances import fill_attributes

PROXIES: tuple[type, ...] = (weakref.ProxyType, weakref.CallableProxyType)


def target_of(reference: Any) -> Any:
    """Returns what a weak reference or proxy points at; None if that is gone."""
    if type(reference) not in PROXIES:
        return reference()
    try:
        return reference.__init__.__self__  # A proxy hands on all it is asked for.
    except ReferenceError:
        return None


def aimed_at_copy(walk: Any, reference: Any) -> Any:
    """Returns a reference like this one to the copy of its target, if there is one."""
    target, kind = target_of(reference), type(reference)
    if isinstance(target, types.MethodType):  # Made anew each time it is asked for.
        owner = walk.stand_in(target.__self__)
        if owner is target.__self__:
            return reference
        inside = dict(_functions.captured_by_name(reference.__callback__))
        callback = walk.copy_of(inside.get("callback"))
        return kind(types.MethodType(target.__func__, owner), callback)
    new = walk.stand_in(target)
    if new is target:
        return reference
    if kind in PROXIES:
        # A proxy hands on all it is asked for; the collector sees its callback.
        return weakref.proxy(new, *map(walk.copy_of, gc.get_referents(reference)))
    made: Any = weakref.ref.__new__(kind, new, walk.copy_of(reference.__callback__))
    if kind is not weakref.ref:
        fill_attributes(walk, reference, made)
    return made


def _make_reference(walk: Any, obj: Any) -> Any:
    return walk.note_reference(obj)


def _make_finalizer(walk: Any, obj: Any) -> Any:
    reason = "it would be called when the copy is gone, on what the original still uses"
    raise refuse(walk, obj, reason)


def _empty(walk: Any, obj: Any, base: Any) -> Any:
    """Returns an empty container of the same class, with the same attributes."""
    new = walk.remember(obj, object.__new__(type(obj)))
    base.__init__(new)
    own = {name: v for name, v in vars(obj).items() if name not in vars(new)}
    walk.fill_later(lambda walk, obj, new: walk.copy_items(own, vars(new)), obj, new)
    return new


def _make_weak_set(walk: Any, obj: Any) -> Any:
    new = _empty(walk, obj, weakref.WeakSet)
    members = list(obj)

    def add() -> None:
        for member in members:
            weakref.WeakSet.add(new, walk.stand_in(member))

    walk.hash_later(obj, add, members)
    return new


def _make_weak_keys(walk: Any, obj: Any) -> Any:
    new = _empty(walk, obj, weakref.WeakKeyDictionary)
    items = [(k, walk.copy_of(v)) for k, v in obj.items()]

    def add() -> None:
        for key, value in items:
            weakref.WeakKeyDictionary.__setitem__(new, walk.stand_in(key), value)

    walk.hash_later(obj, add, obj)
    return new


def _make_weak_values(walk: Any, obj: Any) -> Any:
    new = _empty(walk, obj, weakref.WeakValueDictionary)
    items = [(walk.copy_of(k), v) for k, v in obj.items()]

    def add() -> None:
        for key, value in items:
            weakref.WeakValueDictionary.__setitem__(new, key, walk.stand_in(value))

    walk.hash_later(obj, add, obj)
    return new


MAKERS: dict[type, Maker] = {
    **dict.fromkeys(PROXIES, _make_reference),
    weakref.ref: _make_reference,
    weakref.finalize: _make_finalizer,
    weakref.WeakSet: _make_weak_set,
    weakref.WeakKeyDictionary: _make_weak_keys,
    weakref.WeakValueDictionary: _make_weak_values,
}
