"""Makers of lists, dicts, sets, tuples and arrays."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from operator import is_
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .._atoms import ATOMS
from .._core import Fill, are_atoms, container_maker, needs_hash
from .._identity import address, may_hold_ids
from .._parts import (
    buffer_behind,
    mapping_behind,
    memory_of,
    start_of,
    start_of_memory,
)
from .base import Maker, Tailor
from .instances import fill_attributes, is_open


def _tailor(base: Any, fill: Fill) -> Tailor:
    """Returns a tailor for containers of a class and of those derived from it."""

    def tailor(kind: Any) -> Maker:
        has_attributes: bool | None = kind is not base
        if has_attributes and (not is_open(kind) or issubclass(kind, defaultdict)):
            has_attributes = None
        return container_maker(base, kind, fill, has_attributes=has_attributes)

    return tailor


def _fill_list(walk: Any, obj: Any, new: Any) -> None:
    items = walk.copies_of(obj)
    list.clear(new)
    list.extend(new, items)
    if may_hold_ids(items):
        walk.with_ids.append(new)
    fill_attributes(walk, obj, new)


def _fill_dict(walk: Any, obj: Any, new: Any) -> None:
    copy_of = walk.copy_of
    kind = type(obj)
    base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
    if issubclass(kind, defaultdict):
        new.default_factory = copy_of(obj.default_factory)
    items = [(k, v if type(v) in ATOMS else copy_of(v)) for k, v in base.items(obj)]

    def put(translate: Callable[[Any], Any]) -> None:
        base.clear(new)
        for key, value in items:
            base.__setitem__(new, translate(key), value)
        if may_hold_ids(value for _, value in items):
            walk.with_ids.append(new)

    if any(needs_hash(key) for key, _ in items):
        for key, _ in items:
            copy_of(key)
        walk.hash_later(obj, lambda: put(walk.new_key), [key for key, _ in items])
    else:
        put(_unchanged)
    if kind is not dict:
        fill_attributes(walk, obj, new)


def _unchanged(key: Any) -> Any:
    return key


def _fill_set(walk: Any, obj: Any, new: Any) -> None:
    items = list(set.__iter__(obj))
    if any(needs_hash(item) for item in items):
        for item in items:
            walk.copy_of(item)
        add = functools.partial(set.update, new)
        walk.hash_later(obj, lambda: add(map(walk.new_key, items)), items)
    else:
        set.update(new, items)
    if type(obj) is not set:
        fill_attributes(walk, obj, new)


def _make_deque(walk: Any, obj: Any) -> Any:
    kind = type(obj)
    new = deque.__new__(kind)
    deque.__init__(new, (), obj.maxlen)
    walk.remember(obj, new)

    def fill(walk: Any, obj: Any, new: Any) -> None:
        deque.clear(new)
        deque.extend(new, [walk.copy_of(x) for x in deque.__iter__(obj)])
        if kind is not deque:
            fill_attributes(walk, obj, new)

    walk.fill_later(fill, obj, new)
    return new


def _make_tuple(walk: Any, obj: Any) -> Any:
    """Builds nested tuples from the inside out, without recursing."""
    memo = walk.memo
    if type(obj) is tuple and are_atoms(obj):
        memo[address(obj)] = obj
        return obj
    references = walk.count_references()
    if type(obj) is tuple and not any(isinstance(part, tuple) for part in obj):
        new = tuple(map(walk.copy_of, obj))
        new = obj if all(map(is_, new, obj)) else new
        if walk.count_references() == references:
            memo[address(obj)] = new
        return new
    stack, made = [obj], []
    while stack:
        top = stack[-1]
        if address(top) in memo:
            stack.pop()
            continue
        inner = [
            part
            for part in tuple.__iter__(top)
            if type(part) not in ATOMS
            and address(part) not in memo
            and walk.maker(part) is _make_tuple
        ]
        if inner:
            stack.extend(inner)
            continue
        made.append(address(stack.pop()))
        parts = [walk.copy_of(part) for part in tuple.__iter__(top)]
        pairs = zip(parts, tuple.__iter__(top), strict=True)
        if all(part is old for part, old in pairs) and not hasattr(top, "__dict__"):
            memo[address(top)] = top
        else:
            kind = type(top)
            if hasattr(kind, "n_sequence_fields"):  # From C code, with named items.
                walk.remember(top, kind(parts))
                continue
            new = walk.remember(top, tuple.__new__(kind, parts))
            if kind is not tuple:
                fill_attributes(walk, top, new)
    new = memo[address(obj)]
    if walk.count_references() != references:
        for key in made:  # To be made again, when weak references have a target.
            del memo[key]
    return new


def _make_frozenset(walk: Any, obj: Any) -> Any:
    references = walk.count_references()
    parts = [walk.copy_of(part) for part in obj]
    same = all(part is old for part, old in zip(parts, obj, strict=True))
    if not same and not walk.complete(obj, *obj):  # They will be hashed.
        return walk.memo[address(obj)]
    has_attributes = bool(getattr(obj, "__dict__", None))
    new = obj
    if has_attributes or not same:
        new = frozenset.__new__(type(obj), parts)
        fill_attributes(walk, obj, new)
    return new if walk.count_references() != references else walk.remember(obj, new)


def _make_array(walk: Any, obj: Any) -> Any:
    view = _same_view(walk, obj)
    new = walk.remember(obj, obj.copy(order="K") if view is None else view)
    if view is None and obj.dtype.hasobject:
        walk.fill_later(_fill_array, obj, new)
    if not obj.flags.writeable:
        # When it has been filled.
        walk.hash_later(obj, lambda: new.setflags(write=False), ())
    if type(obj) is not np.ndarray:
        fill_attributes(walk, obj, new)
    return new


def _same_view(walk: Any, view: Any) -> Any:
    """Looks at the copy of an array as `view` looks at the array, if others do, too.

    None where nobody else does, or the copy lies otherwise: a file's memory has become
    the program's, or there were gaps between the numbers.
    """
    owner = memory_of(view)
    if isinstance(owner, np.memmap) or not owner.nbytes:
        return None
    is_common = walk.memory.note(start_of(owner), view)
    buffer = buffer_behind(owner)
    if buffer is not None:
        memory, offset = walk.copy_of(buffer), start_of(view) - start_of_memory(view)
        what = view.shape, view.dtype, memory, offset, view.strides
        return np.ndarray.__new__(type(view), *what)
    if not is_common or owner is view:
        return None
    new = walk.copy_of(owner)
    memory = new.ravel(order="K")
    if new.strides != owner.strides or not np.may_share_memory(memory, new):
        return None
    offset = start_of(view) - start_of(owner)
    if view.dtype.hasobject:  # Of a buffer NumPy would not believe it.
        start = memory[offset // memory.itemsize :]
        return as_strided(start, view.shape, view.strides, subok=True)
    what = view.shape, view.dtype, memory, offset, view.strides
    return np.ndarray.__new__(type(view), *what)


def _fill_array(walk: Any, obj: Any, new: Any) -> None:
    for name in obj.dtype.names or ():  # Records: each field is an array.
        if obj.dtype[name].hasobject:
            _fill_array(walk, obj[name], new[name])
    if obj.dtype.names is None:
        for i, item in enumerate(obj.flat):
            new.flat[i] = walk.copy_of(item)


def _make_record(walk: Any, obj: Any) -> Any:
    """Copies one row of a structured array, which can be written to."""
    box = np.empty((), obj.dtype)
    box[()] = obj
    new = walk.remember(obj, box[()])  # It looks into the box.
    if obj.dtype.hasobject:
        walk.fill_later(lambda walk, obj, new: _fill_array(walk, box, box), obj, new)
    return new


def _make_bytearray(walk: Any, obj: Any) -> Any:
    kind = type(obj)
    new = walk.remember(obj, bytearray.__new__(kind))
    bytearray.extend(new, obj)
    if kind is not bytearray:
        walk.fill_later(fill_attributes, obj, new)
    return new


def _make_mapping_proxy(walk: Any, obj: Any) -> Any:
    return walk.remember(obj, types.MappingProxyType(walk.copy_of(mapping_behind(obj))))


MAKERS: dict[type, Maker] = {
    deque: _make_deque,
    tuple: _make_tuple,
    frozenset: _make_frozenset,
    np.ndarray: _make_array,
    np.void: _make_record,
    bytearray: _make_bytearray,
    types.MappingProxyType: _make_mapping_proxy,
}

TAILORS: dict[type, Tailor] = {
    list: _tailor(list, _fill_list),
    dict: _tailor(dict, _fill_dict),
    OrderedDict: _tailor(OrderedDict, _fill_dict),
    set: _tailor(set, _fill_set),
}
