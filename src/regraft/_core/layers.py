"""What every layer has: lists of what it tracks and of its calls, wrapped methods."""

from __future__ import annotations

from types import CellType, FunctionType, MethodType
from typing import Any

from .._atoms import ATOMS
from .._identity import address
from .makers import settle_attributes

Stores = dict[str, tuple[Any, Any]]


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


def rewrap(
    walk: Any, wrapper: FunctionType, owner: Any, new: Any, cells: dict[int, CellType]
) -> None:
    """Copies a function around a method, which closes over the owner and the method.

    A walk could copy it as it copies any function. Keras puts two of them on every
    layer, so they are worth a quicker way.

    Args:
        walk: The walk, which is told of the copy.
        wrapper: The function. What is not as Keras makes it is left to the walk.
        owner: Whose method it is.
        new: The owner's copy.
        cells: The cells of copies, by those that the functions of the owner share.
    """
    method = wrapper.__dict__.get("__wrapped__")
    if type(method) is not MethodType or method.__self__ is not owner:
        return
    bound = MethodType(method.__func__, new)
    attributes = {**wrapper.__dict__, "__wrapped__": None}
    if not ATOMS.issuperset(map(type, attributes.values())):
        return
    attributes["__wrapped__"] = bound
    (cell, _) = wrapper.__closure__ or ()
    around = cells.setdefault(address(cell), CellType(new))
    made = FunctionType(
        wrapper.__code__, wrapper.__globals__, closure=(around, CellType(bound))
    )
    for name in _DESCRIPTION:
        setattr(made, name, getattr(wrapper, name))
    if wrapper.__kwdefaults__:
        made.__kwdefaults__ = dict(wrapper.__kwdefaults__)
    if wrapper.__annotations__:
        made.__annotations__ = dict(wrapper.__annotations__)
    made.__dict__ = attributes
    walk.remember(wrapper, made)


_DESCRIPTION = ("__name__", "__qualname__", "__module__", "__doc__", "__defaults__")
