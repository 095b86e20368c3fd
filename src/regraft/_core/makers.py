"""Makers of containers and of instances: most objects are one or the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .._atoms import ATOMS
from .._identity import address, may_hold_ids
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
    is_simple, add = _CONTENTS[base]
    blank = base.__new__

    def bare_copy(obj: Any) -> Any:
        """Copies what has simple items and nothing else; None for everything else."""
        if not is_simple(obj):
            return None
        new = blank(kind)
        add(new, obj)
        return new

    def make(walk: Any, obj: Any) -> Any:
        new = walk.memo[address(obj)] = blank(kind)
        is_done = has_attributes is not None and is_simple(obj)
        if is_done and (not has_attributes or settle_attributes(walk, obj, new)):
            add(new, obj)
            return new
        walk.fill_later(_fill_of(obj) or fill, obj, new)
        return new

    if has_attributes is False:
        make.bare_copy = bare_copy  # type: ignore[attr-defined]
    make.has_attributes = has_attributes  # type: ignore[attr-defined]
    return make


def _fill_of(obj: Any) -> Fill | None:
    """Returns what fills the copy of an ordinary container."""
    if type(obj) is list:
        return _fill_list
    return _fill_names if type(obj) is dict and are_names(obj) else None


def _fill_list(walk: Any, obj: Any, new: Any) -> None:
    new[:] = walk.copies_of(obj)
    if may_hold_ids(new):
        walk.with_ids.append(new)


def _fill_names(walk: Any, obj: Any, new: Any) -> None:
    walk.copy_items(obj, new)


def settle_attributes(walk: Any, obj: Any, new: Any) -> bool:
    """Gives a shell the attributes of its original, if all are simple or known."""
    state, memo = _attributes(obj, "__dict__"), walk.memo
    if address(state) in memo:  # It is met elsewhere; often it is the object itself.
        return False
    if not state:
        return True
    if len(state) == 1:
        # Keras wraps every list, dict and set on a layer, and lets each know who
        # watches it: they are a quarter of all objects.
        ((name, value),) = state.items()
        twin = None if type(value) in ATOMS else memo.get(address(value))
        if twin is not None:
            _attributes(new, "__dict__")[name] = twin
            return True
    state = dict.copy(state)
    if not walk.settle(state):
        return False
    object.__setattr__(new, "__dict__", state)
    return True


def _add_to_list(new: Any, obj: Any) -> None:
    list.extend(new, list.__iter__(obj))


def _add_to_dict(new: Any, obj: Any) -> None:
    dict.update(new, dict.items(obj))


def _is_empty_ordered_dict(obj: Any) -> bool:
    """An `OrderedDict` has attributes, though hardly anybody gives it one."""
    return type(obj) is OrderedDict and not obj and not obj.__dict__


def _add_nothing(new: Any, obj: Any) -> None:
    pass


_CONTENTS: dict[type, tuple[Callable[[Any], bool], Callable[[Any, Any], None]]] = {
    list: (is_simple_list, _add_to_list),
    dict: (is_simple_dict, _add_to_dict),
    OrderedDict: (_is_empty_ordered_dict, _add_nothing),
    set: (is_simple_set, set.update),
}


def instance_maker(
    fill: Fill,
    *,
    noted_in: str | None = None,
    without: str | None = None,
    stands_alone: Maker | None = None,
    at_once: bool = True,
) -> Maker:
    """Returns a maker of objects that are nothing but a dict of attributes.

    Args:
        fill: Fills the copies of those whose attributes are not simple.
        noted_in: The name of a list on the walk that gets each `(original, copy)`.
        without: The name of an attribute that is None in a copy.
        stands_alone: Asked of an object that has no attribute, or one that is a text:
            does it stand for itself?
        at_once: Whether copies get attributes at once that are simple. Otherwise the
            others are not asked.
    """

    def make(walk: Any, obj: Any) -> Any:
        state = _attributes(obj, "__dict__")
        is_asked = len(state) <= 1 and are_names(state.values())
        if is_asked and stands_alone is not None and stands_alone(walk, obj):
            return walk.remember(obj, obj)
        new = walk.memo[address(obj)] = object.__new__(type(obj))
        if not at_once:
            walk.fill_later(fill, obj, new)
        elif state:
            state = dict.copy(state)
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
