"""Functions around methods, which close over the method and its owner."""

from __future__ import annotations

from types import CellType, FunctionType, MethodType
from typing import Any

from .._atoms import ATOMS
from .._identity import address


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
