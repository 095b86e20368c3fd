"""How lists, dicts and sets are compared, item by item.

Each function is handed the comparison, which takes up the pairs that it finds.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from ._atoms import ATOMS
from ._errors import shortened
from ._identity import address, address_by_id, may_be_id
from ._parts import is_model_state
from ._values import NOTHING, Difference, exact, same_atom

WEAK_CONTAINERS = (
    weakref.WeakSet,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)


def compare_items(
    comparison: Any, left: Any, right: Any, path: str
) -> Iterator[Difference]:
    """Compares what is in two containers; anything else has nothing in it."""
    if isinstance(left, dict):
        yield from _compare_dicts(comparison, left, right, path)
    elif isinstance(left, set | frozenset):
        yield from _compare_sets(comparison, left, right, path)
    elif isinstance(left, bytearray):
        if left != right:
            yield Difference(path, left, right, "value")
    elif isinstance(left, list | tuple | deque):
        if isinstance(left, deque):
            comparison.push(left.maxlen, right.maxlen, f"{path}.maxlen")
        mine, other = _items_of(left), _items_of(right)
        if len(mine) != len(other):
            yield Difference(path, len(mine), len(other), "number of items")
        for i, (x, y) in enumerate(zip(mine, other, strict=False)):
            comparison.push(x, y, f"{path}[{i}]")


def compare_weakly(
    comparison: Any, left: Any, right: Any, path: str
) -> Iterator[Difference]:
    """Compares containers that hold their items weakly."""
    if len(left) != len(right):
        yield Difference(path, len(left), len(right), "number of items")
    if isinstance(left, weakref.WeakSet):  # In no order.
        comparison.put_off(left, right, path)
        return
    for i, (mine, other) in enumerate(zip(left.items(), right.items(), strict=False)):
        weak = 0 if isinstance(left, weakref.WeakKeyDictionary) else 1
        where = f"{path}[…{i}]"
        pointers = address(mine[weak]), address(other[weak])
        comparison.point(*pointers, where, "weak reference")
        comparison.push(mine[1 - weak], other[1 - weak], where)


def class_of(obj: Any) -> Any:
    """Returns the class, where containers that Keras wraps count as plain ones."""
    kind = type(obj)
    if kind.__module__.split(".")[0] in ("keras", "tensorflow", "builtins"):
        for plain in (list, dict, set):
            if isinstance(obj, plain):
                return plain
    return kind


def _items_of(sequence: Any) -> list[Any]:
    """Returns the items, past what a class that nobody here knows says they are."""
    kind = class_of(sequence)
    base: Any = next((b for b in (list, tuple, deque) if issubclass(kind, b)), None)
    if base is None or kind is not type(sequence):  # TensorFlow has them elsewhere.
        return list(sequence)
    return list(base.__iter__(sequence))


def _compare_dicts(
    comparison: Any, left: Any, right: Any, path: str
) -> Iterator[Difference]:
    mine, other = _entries_of(left), _entries_of(right)
    keys, others = [key for key, _ in mine], [key for key, _ in other]
    if all(map(_is_plain_key, keys)):
        if keys != others or not all(map(_are_alike, keys, others)):
            yield Difference(path, keys, others, "keys")
        found = dict(other)
        for key, value in mine:
            if key in found:
                comparison.push(value, found[key], f"{path}[{shortened(repr(key))}]")
        return
    if len(mine) != len(other):
        yield Difference(path, len(mine), len(other), "number of items")
    pairs = zip(mine, other, strict=False)
    for i, ((k, v), (key, value)) in enumerate(pairs):
        _compare_keys(comparison, k, key, f"{path}.<key {i}>")
        comparison.push(v, value, f"{path}[…{i}]")


def _entries_of(mapping: Any) -> list[tuple[Any, Any]]:
    """Returns keys and values, past what a class says, which may reorder them."""
    bases: tuple[Any, ...] = (OrderedDict, dict)
    base = next((b for b in bases if issubclass(type(mapping), b)), None)
    # TensorFlow has them elsewhere.
    return list(mapping.items() if base is None else base.items(mapping))


def _compare_keys(comparison: Any, left: Any, right: Any, path: str) -> None:
    if may_be_id(left) and may_be_id(right):
        comparison.point(address_by_id(left), address_by_id(right), path, "key")
    elif type(left) is type(right) is tuple and len(left) == len(right):
        for mine, other in zip(left, right, strict=True):
            _compare_keys(comparison, mine, other, path)
    else:
        comparison.push(left, right, path)


def _compare_sets(
    comparison: Any, left: Any, right: Any, path: str
) -> Iterator[Difference]:
    base: Any = set if isinstance(left, set) else frozenset
    mine, other = list(base.__iter__(left)), list(base.__iter__(right))
    if len(mine) != len(other):
        yield Difference(path, len(mine), len(other), "number of items")
        return
    if all(map(_is_plain_key, mine)):
        if {*map(exact, mine)} != {*map(exact, other)}:
            yield Difference(path, left, right, "value")
        return
    ids = [[x for x in side if may_be_id(x)] for side in (mine, other)]
    if len(mine) > 1 and len(ids[0]) == len(ids[1]) == len(mine):
        comparison.point_at_all(*(map(address_by_id, side) for side in ids), path)
        return
    comparison.put_off(mine, other, path)


def match_items(
    comparison: Any, left: Any, right: Any, path: str
) -> Iterator[Difference]:
    """Compares sets of the same size, when most of their items have been paired."""
    where, others = f"{path}{{…}}", list(right)
    for item in left:
        if isinstance(left, weakref.WeakSet) and comparison.partner_of(item) is None:
            continue  # What is reached in no other way is not part of the model.
        place = _place_of(comparison, item, others)
        if place is None:
            yield Difference(path, item, NOTHING, "an item that the other has not")
        else:
            _compare_keys(comparison, item, others.pop(place), where)


def _place_of(comparison: Any, item: Any, others: list[Any]) -> int | None:
    """Returns where the partner of an item is among those of another set.

    Sets have no order: it is the very object, one of the same name or value, or one
    that does not differ in anything.
    """
    alike = [i for i, other in enumerate(others) if type(other) is type(item)]
    place = address_by_id if may_be_id(item) else address
    partner = comparison.partner_at(place(item))
    if partner is not None:
        return next((i for i in alike if place(others[i]) == partner), None)
    if len(others) == len(alike) == 1:
        return 0
    for is_partner in (_is_the_same, _has_the_same_name, _are_alike):
        for i in alike:
            if is_partner(item, others[i]):
                return i
    if is_model_state(item) or type(item) in ATOMS:
        return None
    return next((i for i in alike if comparison.is_same(item, others[i])), None)


def _is_the_same(left: Any, right: Any) -> bool:
    return left is right


def _has_the_same_name(left: Any, right: Any) -> bool:
    return is_model_state(left) and left.name == right.name


def _are_alike(left: Any, right: Any) -> bool:
    """Tells whether keys that mean the same in any model have the same value."""
    return _is_made_of_atoms(left) and same_atom(left, right)


def _is_made_of_atoms(key: Any) -> bool:
    if isinstance(key, tuple | frozenset):
        return all(map(_is_made_of_atoms, key))
    return type(key) in ATOMS


def _is_plain_key(key: Any) -> bool:
    """Tells whether a key means the same in any model."""
    if isinstance(key, tuple | frozenset):
        return all(_is_plain_key(part) for part in key)
    return type(key) in ATOMS and not may_be_id(key)
