"""The choice of a maker, once for each class."""

from __future__ import annotations

import functools
import types
import weakref
from contextlib import suppress
from typing import Any

from .. import _backends, _keras
from .._atoms import is_shared_class, is_value_class
from . import containers, functions, models, weak
from .base import Maker, Tailor, always
from .instances import (
    has_no_attributes,
    lone_instance_maker,
    make_by_deepcopy,
    make_by_reduce,
    make_namespace,
    make_value,
)

_USER_COPIERS: dict[type, Maker] = {}


def set_copier(kind: type, maker: Maker) -> None:
    """Makes `maker` responsible for a class and its subclasses."""
    maker.completes = True  # type: ignore[attr-defined]
    _USER_COPIERS[kind] = maker
    _CHOICES.clear()


def share(walk: Any, obj: Any) -> Any:
    """Lets an object stand for itself."""
    return walk.remember(obj, obj)


share.shares = True  # type: ignore[attr-defined]


_MAKERS: dict[type, Maker] = {
    **containers.MAKERS,
    **functions.MAKERS,
    **weak.MAKERS,
    types.SimpleNamespace: make_namespace,
}

_PYTHON: dict[type, Tailor] = {
    **containers.TAILORS,
    **{kind: always(maker) for kind, maker in _MAKERS.items()},
}


# What was decided for a class, and how many frameworks were known by then.
_CHOICES: weakref.WeakKeyDictionary[type, tuple[int, Maker]] = (
    weakref.WeakKeyDictionary()
)


def choose_maker(obj: Any) -> Maker:
    """Decides how objects of the class of `obj` are copied."""
    kind = type(obj)
    frameworks = _backends.loaded()
    known, maker = _CHOICES.get(kind, (None, None))
    if maker is None or known != len(frameworks):
        maker = _choose(obj, kind, frameworks)
        _CHOICES[kind] = len(frameworks), maker
    return maker


def _choose(obj: Any, kind: Any, frameworks: list[Any]) -> Maker:
    found = _by_class(kind, _USER_COPIERS)
    if found is not None:
        return found
    if is_shared_class(kind) or _keras.is_surroundings(kind):
        return share
    if kind in weak.PROXIES:  # It says it is an instance of its target's class.
        return weak.MAKERS[kind]
    tailor = _by_class(kind, models.TAILORS)
    if tailor is not None:
        return tailor(kind)
    for framework in frameworks:
        if issubclass(kind, framework.shared_types()):
            return share
        copier = _by_instance(obj, framework.copiers())
        if copier is not None:
            return functools.partial(_make_by_copier, copier)
    tailor = _by_class(kind, _PYTHON)
    if tailor is not None:
        return tailor(kind)
    if is_value_class(kind):
        return make_value
    if hasattr(kind, "__deepcopy__"):
        return make_by_deepcopy
    if not _has_plain_class(kind, obj):
        return make_by_reduce
    # What can have no attributes is known by its identity alone: `object()`.
    return share if has_no_attributes(kind) else lone_instance_maker(kind)


def _make_by_copier(copier: Maker, walk: Any, obj: Any) -> Any:
    new = copier(obj, walk)
    return walk.remember(obj, new)


def _by_class(kind: type, known: dict[type, Any]) -> Any:
    return next((known[base] for base in kind.__mro__ if base in known), None)


def _by_instance(obj: Any, copiers: dict[type, Maker]) -> Maker | None:
    # Abstract classes (`jax.Array`) are not in the mro of their instances.
    with suppress(Exception):  # Whatever an object raises that is asked for its class.
        return next((c for base, c in copiers.items() if isinstance(obj, base)), None)
    return None


def is_plain(obj: Any) -> bool:
    """Tells whether an object is nothing but its attributes.

    What a copier of the user's makes is complete as soon as it is made.
    """
    maker = choose_maker(obj)
    is_made_at_once = getattr(maker, "completes", False)
    return not is_made_at_once and maker not in (make_by_reduce, make_by_deepcopy)


def _has_plain_class(kind: type, obj: Any) -> bool:
    customs = ("__reduce_ex__", "__reduce__", "__getstate__")
    if any(getattr(kind, name) is not getattr(object, name) for name in customs):
        return False
    if hasattr(kind, "__getnewargs_ex__") or hasattr(kind, "__getnewargs__"):
        return False
    try:  # Asks Python whether the class hides state in C.
        reduced: Any = object.__reduce_ex__(obj, 4)
    except Exception:  # Whatever a class raises that is asked for its attributes.
        return False
    made_by, args, *_ = reduced
    return made_by.__name__ == "__newobj__" and args == (kind,)
