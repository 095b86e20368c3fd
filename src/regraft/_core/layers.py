"""What every layer has: lists of what it tracks and of its calls, wrapped methods."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from .._identity import address
from .makers import settle_attributes
from .wrappers import rewrap

Stores = dict[str, tuple[Any, Any]]

_attributes = object.__getattribute__


class LayerParts(NamedTuple):
    """The attributes of layers that are not copied as others are, by their names.

    Attributes:
        tracker: What collects sublayers and variables. Lists of them ask for it.
        calls: Lists of calls, also of such that other models made. They stay empty
            until it is known which calls the copy has.
        losses: Lists of tensors, some of which may mean nothing outside of a trace.
        wrappers: Functions around methods of the layer, with their code.
        hollow: Called with the walk, a list of losses with something in it, or a list
            of calls that is not simple, and its name.
    """

    tracker: str
    calls: tuple[str, ...]
    losses: tuple[str, ...]
    wrappers: dict[str, CodeType]
    hollow: Callable[[Any, Any, str], None]


def fill_layer(
    walk: Any,
    obj: Any,
    new: Any,
    parts: LayerParts,
    prepare: Callable[[Any, Any, Any, dict[str, Any]], None] | None,
) -> None:
    """Gives a shell the attributes of a layer.

    Args:
        walk: The walk.
        obj: The layer.
        new: Its copy, an empty shell.
        parts: The attributes that are not copied as others are.
        prepare: Called, if there is more to do, with the walk, the layer, its copy and
            a dict of the layer's attributes, before those are copied.
    """
    memo = walk.memo
    attributes = _attributes(obj, "__dict__")
    shared = memo.get(address(attributes))
    if shared is not None and shared is not _attributes(new, "__dict__"):
        # Two objects, one dict: so have their copies.
        object.__setattr__(new, "__dict__", shared)
        return
    state = dict.copy(attributes)
    walk.copy_of(_unknown(memo, state, parts.tracker))
    # Lists of calls come before other attributes, which may hold the same lists:
    # following those would drag in the calls of other models.
    for name in parts.calls:
        calls = _unknown(memo, state, name)
        if calls is not None:
            _hollow_calls(walk, calls, name, parts)
    for name in parts.losses:
        losses = _unknown(memo, state, name)
        if isinstance(losses, list) and list.__len__(losses):
            parts.hollow(walk, losses, name)
    if prepare is not None:
        prepare(walk, obj, new, state)
    cells: dict[int, CellType] = {}  # All wrappers close over the same one.
    for name, code in parts.wrappers.items():
        # A function that `functools.wraps` put around it may have brought it.
        wrapper = _unknown(memo, state, name)
        if type(wrapper) is FunctionType and wrapper.__code__ is code:
            rewrap(walk, wrapper, obj, new, cells)
    holds_ids = walk.translate(state)
    if shared is None:
        memo[address(attributes)] = state
        object.__setattr__(new, "__dict__", state)
    else:  # Filled once more, now that the targets of weak references are known.
        shared.update(state)
    if holds_ids:
        walk.with_ids.append(_attributes(new, "__dict__"))


def _unknown(memo: dict[int, Any], state: dict[str, Any], name: str) -> Any:
    """Returns an attribute that the walk has not met, or None."""
    value = state.get(name)
    return None if address(value) in memo else value


def _hollow_calls(walk: Any, calls: Any, name: str, parts: LayerParts) -> None:
    twin = empty_like(walk, calls)
    if twin is None:
        parts.hollow(walk, calls, name)
    else:
        walk.node_lists.append((calls, twin, name))


def copy_stores(
    walk: Any, stores: Stores, ids: dict[str, set[int]]
) -> tuple[Stores, dict[str, set[int]], bool]:
    """Copies the lists in which something collects objects.

    Args:
        walk: The walk.
        stores: What is asked of an object, and the list that it then gets into, by the
            names of the lists.
        ids: The ids of what is in the lists.

    Returns:
        The copies of both, and whether the second is complete.
    """
    memo, copy_of = walk.memo, walk.copy_of
    new_stores, new_ids = stores.copy(), dict[str, set[int]]()
    is_complete = len(ids) == len(stores)
    for name, (test, store) in stores.items():
        key = address(store)
        if type(store) is not list or name not in ids or key in memo:
            twin = copy_of(store)  # Perhaps still without its items.
            is_complete = False
        else:
            twin = memo[key] = []
            twin += map(copy_of, store)
            new_ids[name] = set(map(id, twin))
            is_complete = is_complete and ids[name] == set(map(id, store))
        is_bare = type(test) is FunctionType and test.__closure__ is None
        new_stores[name] = (test if is_bare else copy_of(test), twin)
    return new_stores, new_ids, is_complete


def empty_like(walk: Any, items: Any) -> Any:
    """Returns an empty list of a list's class, with its attributes.

    None if they are neither simple nor known, and where a class keeps more.
    """
    kind = type(items)
    if kind is list:
        return walk.remember(items, [])
    make = walk.maker(items)
    if not getattr(make, "has_attributes", False):
        return None
    new = list.__new__(kind)
    return walk.remember(items, new) if settle_attributes(walk, items, new) else None
