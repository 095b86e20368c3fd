"""What can be changed through two models at once, wherever it stands in them.

Most of what two models share stands at the same place in both, where a comparison comes
across it. A copy may also hold at one place what its original holds at another, or lie
in the memory of something else: that is known when all has been met.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import _backends, _functions
from ._errors import RegraftError
from ._identity import address
from ._makers import PROXIES
from ._parts import memory_of, start_of
from ._values import Difference
from ._walk import Walk

# Python may make one or several of these as it likes.
WITHOUT_IDENTITY = (
    tuple,
    frozenset,
    types.FunctionType,
    types.MethodType,
    types.BuiltinMethodType,
    types.MethodWrapperType,
)


class Sharing:
    """Notes what two models hold, and finds what they share.

    Args:
        root: The first model.
    """

    def __init__(self, root: Any) -> None:
        self._walk = Walk(root)  # Knows which objects may be shared.
        self._backend = _backends.active()
        self._met: list[tuple[Any, Any, str]] = []
        self._functions: list[tuple[Any, str]] = []
        # For each piece of memory, what the other model had where it was first met.
        self._mates: dict[Any, tuple[set[Any], Any, str]] = {}
        self._partners: dict[Any, tuple[set[Any], Any, str]] = {}

    def note(self, left: Any, right: Any, path: str) -> None:
        """Notes two objects that stand at the same place, and keeps them alive."""
        self._met.append((left, right, path))
        for obj in (left, right):
            if isinstance(obj, types.FunctionType):
                self._walk.note_rebound(_functions.rebound_cells(obj))

    def is_always_shared(self, obj: Any) -> bool:
        """Tells whether copies share all objects of this class."""
        return bool(getattr(self._walk.maker(obj), "shares", False))

    def shared(self, obj: Any, path: str) -> Iterator[Difference]:
        """Yields a difference if a copy would not hold the very same object."""
        if isinstance(obj, types.FunctionType):  # Others may assign to what it reads.
            self._functions.append((obj, path))
        elif not self._may_be_shared(obj):
            yield Difference(path, obj, obj, "shared by both models")

    def compare_memory(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        """Compares where the values of two variables, tensors or arrays lie."""
        mine, other = self._memory_of(left), self._memory_of(right)
        if left is right or mine & other or _overlap(left, right):
            yield Difference(path, left, right, "shared buffer")
            return
        for piece in other:
            before, twin, where = self._partners.setdefault(piece, (mine, right, path))
            if twin is not right and self._are_apart(before, mine, right):
                why = f"tie: it lies in the memory of {where}"
                yield Difference(path, twin, right, why)
        for piece in mine:
            before, twin, where = self._mates.setdefault(piece, (other, left, path))
            if twin is not left and self._are_apart(before, other, left):
                why = f"tie: the first lies in the memory of {where}"
                yield Difference(path, left, right, why)

    def _are_apart(self, one: set[Any], other: set[Any], value: Any) -> bool:
        """Tells whether memory differs where what is written to a value would show."""
        is_changed = isinstance(value, np.ndarray) or self._backend.is_mutable()
        return is_changed and bool(other) and one.isdisjoint(other)

    def found(self) -> Iterator[Difference]:
        """Yields what is shared, when all has been noted."""
        for function, path in self._functions:
            if self._walk.must_copy(function):
                yield Difference(path, function, function, "shared by both models")
        lefts = {address(left): path for left, _, path in self._met}
        seen: set[int] = set()
        for left, right, path in self._met:
            key = address(right)
            if left is right or key not in lefts or key in seen:
                continue
            seen.add(key)
            if self._is_crossed(right):
                why = f"shared by both models: it is {lefts[key]} of the other"
                yield Difference(path, left, right, why)
        for piece, (_, value, path) in self._partners.items():
            if piece in self._mates:
                why = f"shared buffer: that of {self._mates[piece][2]} of the other"
                yield Difference(path, value, value, why)

    def _is_crossed(self, obj: Any) -> bool:
        if isinstance(obj, types.FunctionType):
            return self._walk.must_copy(obj)
        if isinstance(obj, (*WITHOUT_IDENTITY, weakref.ref, *PROXIES)):
            return False
        return not self._may_be_shared(obj)

    def _may_be_shared(self, obj: Any) -> bool:
        """Asks the walk whether a copy would hold the very same object."""
        try:
            return self._walk.copy_of(obj) is obj
        except RegraftError:
            return False

    def _memory_of(self, value: Any) -> set[Any]:
        if isinstance(value, np.ndarray):
            return _array_memory(value)
        return self._backend.buffers(value)


def _array_memory(array: Any) -> set[Any]:
    """Returns where the memory begins that an array looks into."""
    if not array.nbytes or not array.flags.writeable:
        return set()
    return {("numpy", start_of(memory_of(array)))}


def _overlap(left: Any, right: Any) -> bool:
    """Tells whether writing to one of two arrays writes to the other."""
    if not (isinstance(left, np.ndarray) and isinstance(right, np.ndarray)):
        return False
    if not (left.flags.writeable or right.flags.writeable):
        return False
    return np.may_share_memory(left, right)
