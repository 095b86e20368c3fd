"""Makers of weak references and of containers that hold their items weakly."""

from __future__ import annotations

import types
import weakref
from typing import Any

from .base import Maker

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
    target = target_of(reference)
    if isinstance(target, types.MethodType):  # Made anew each time it is asked for.
        owner = walk.stand_in(target.__self__)
        if owner is target.__self__:
            return reference
        return weakref.WeakMethod(types.MethodType(target.__func__, owner))
    new = walk.stand_in(target)
    if new is target:
        return reference
    if type(reference) in PROXIES:
        return weakref.proxy(new)
    callback = walk.copy_of(reference.__callback__)
    return weakref.ref(new) if callback is None else weakref.ref(new, callback)


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
    **dict.fromkeys(PROXIES, _make_reference),
    weakref.ref: _make_reference,
    weakref.WeakSet: _make_weak_set,
    weakref.WeakKeyDictionary: _make_weak_keys,
    weakref.WeakValueDictionary: _make_weak_values,
}
