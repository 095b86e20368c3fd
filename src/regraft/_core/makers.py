"""Makers of containers and of instances: most objects are one or the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .._identity import address
from .core import Fill, Maker
from .simple import are_names, is_simple_dict, is_simple_list, is_simple_set

_attributes = object.__getattribute__


def container_maker(
    base: Any, kind: Any, fill: Fill, *, has_attributes: bool | None
) -> Maker:
    """Returns a maker of lists, dicts or sets of a class.

    Args:
        base: `list`, `dict`, `OrderedDict` or `set`.
        kind: The class: `base`, or one derived from it.
        fill: Fills the copies of those that are not simple.
        has_attributes: Whether its objects have, apart from items, nothing but a dict
            of attributes (True), or nothing at all (False). None if more.
    """
    if base is OrderedDict:
        return _ordered_maker(kind, fill)
    is_simple, add = _CONTENTS[base]
    blank, size = base.__new__, base.__len__

    def make(walk: Any, obj: Any) -> Any:
        memo = walk.memo
        new = memo[address(obj)] = blank(kind)
        is_done = has_attributes is not None and (not size(obj) or is_simple(obj))
        if is_done and (not has_attributes or _settle_attributes(walk, obj, new)):
            add(new, obj)
            return new
        walk.fill_later(fill, obj, new)
        return new

    return make


def _settle_attributes(walk: Any, obj: Any, new: Any) -> bool:
    state, memo = _attributes(obj, "__dict__"), walk.memo
    if not state:
        return True
    if address(state) in memo:  # It is met elsewhere; often it is the object itself.
        return False
    if len(state) == 1:
        # Keras wraps every list, dict and set on a layer, and lets each know who
        # watches it: they are a quarter of all objects.
        ((name, value),) = state.items()
        twin = memo.get(address(value))
        if twin is not None:
            _attributes(new, "__dict__")[name] = twin
            return True
    state = state.copy()
    if not walk.settle(state):
        return False
    object.__setattr__(new, "__dict__", state)
    return True


def _add_to_list(new: Any, obj: Any) -> None:
    list.extend(new, list.__iter__(obj))


def _add_to_dict(new: Any, obj: Any) -> None:
    dict.update(new, dict.items(obj))


_CONTENTS: dict[type, tuple[Callable[[Any], bool], Callable[[Any, Any], None]]] = {
    list: (is_simple_list, _add_to_list),
    dict: (is_simple_dict, _add_to_dict),
    set: (is_simple_set, set.update),
}


def _ordered_maker(kind: Any, fill: Fill) -> Maker:
    def make(walk: Any, obj: Any) -> Any:
        if kind is OrderedDict and not obj and not obj.__dict__:
            return walk.remember(obj, OrderedDict())
        new = walk.remember(obj, OrderedDict.__new__(kind))
        walk.fill_later(fill, obj, new)
        return new

    return make


def instance_maker(
    fill: Fill,
    *,
    noted_in: str | None = None,
    without: str | None = None,
    stands_alone: Maker | None = None,
) -> Maker:
    """Returns a maker of objects that are nothing but a dict of attributes.

    Args:
        fill: Fills the copies of those whose attributes are not simple.
        noted_in: The name of a list on the walk that gets each `(original, copy)`.
        without: The name of an attribute that is None in a copy.
        stands_alone: Asked of an object that has no attribute, or one that is a text:
            does it stand for itself?
    """

    def make(walk: Any, obj: Any) -> Any:
        state = _attributes(obj, "__dict__")
        is_asked = len(state) <= 1 and are_names(state.values())
        if is_asked and stands_alone is not None and stands_alone(walk, obj):
            return walk.remember(obj, obj)
        new = walk.memo[address(obj)] = object.__new__(type(obj))
        if state:
            state = state.copy()
            if without is not None:
                state[without] = None
            if walk.settle(state):
                object.__setattr__(new, "__dict__", state)
            else:
                walk.fill_later(fill, obj, new)
        if noted_in is not None:
            getattr(walk, noted_in).append((obj, new))
        return new

    return make
