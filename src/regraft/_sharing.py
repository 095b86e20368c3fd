"""What can be changed through two models at once, wherever it stands in them.

Most of what two models share stands at the same place in both, where a comparison comes
across it. A copy may also hold at one place what its original holds at another, or lie
in the memory of something else: that is known when all has been met.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _backends, _functions
from ._errors import RegraftError
from ._identity import address
from ._makers import PROXIES
from ._parts import start_of, start_of_memory
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


@dataclass(frozen=True)
class _Pair:
    """Two values that stand at the same place, and what memory they lie in."""

    left: Any
    right: Any
    left_memory: set[Any]
    right_memory: set[Any]
    path: str
    owners: tuple[Any, Any]

    @staticmethod
    def is_apart(one: set[Any], other: set[Any], piece: Any) -> bool:
        """Tells whether memory differs where what is written would show.

        JAX, which names a piece by a tuple, never writes to it.
        """
        is_written = not isinstance(piece, tuple)
        return is_written and bool(other) and one.isdisjoint(other)

    def distance_to(self, other: _Pair) -> tuple[Any, Any]:
        """Returns how far another pair lies from this one, and in which steps."""
        sides = (self.left, other.left), (self.right, other.right)
        left, right = ((_start(b) - _start(a), _steps(b)) for a, b in sides)
        return left, right


def _start(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return start_of(value)
    return int(value.data_ptr()) if hasattr(value, "data_ptr") else 0


def _steps(value: Any) -> tuple[int, ...]:
    if isinstance(value, np.ndarray):
        return value.strides
    if hasattr(value, "stride"):
        return tuple(step * value.element_size() for step in value.stride())
    return ()


class Sharing:
    """Notes what two models hold, and finds what they share.

    Args:
        root: The first model.
    """

    def __init__(self, root: Any) -> None:
        self._walk = Walk(root)  # Knows which objects may be shared.
        self._met: list[tuple[Any, Any, str]] = []
        self._functions: list[tuple[Any, str]] = []
        # For each piece of memory of either model, where it was first met.
        self._mates: dict[Any, _Pair] = {}
        self._partners: dict[Any, _Pair] = {}

    def note(self, left: Any, right: Any, path: str) -> None:
        """Notes two objects that stand at the same place, and keeps them alive."""
        self._met.append((left, right, path))
        for obj in (left, right):
            if type(obj) is types.FunctionType:  # Of a proxy its target would be asked.
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

    def compare_memory(
        self, left: Any, right: Any, path: str, owners: tuple[Any, Any] | None = None
    ) -> Iterator[Difference]:
        """Compares where the values of two variables, tensors or arrays lie.

        Args:
            left: A value of the first model.
            right: That of the second.
            path: Where they stand.
            owners: The variables that hold them, if they are held by any.
        """
        mine, other = self._memory_of(left), self._memory_of(right)
        if left is right or mine & other or _overlap(left, right):
            yield Difference(path, left, right, "shared buffer")
            return
        pair = _Pair(left, right, mine, other, path, owners or (left, right))
        for piece in other:
            first = self._partners.setdefault(piece, pair)
            is_met = first.owners[1] is pair.owners[1]
            if not is_met and pair.is_apart(first.left_memory, mine, piece):
                why = f"tie: it lies in the memory of {first.path}"
                yield Difference(path, first.right, right, why)
        for piece in mine:
            first = self._mates.setdefault(piece, pair)
            if first.owners[0] is pair.owners[0]:
                continue
            if pair.is_apart(first.right_memory, other, piece):
                why = f"tie: the first lies in the memory of {first.path}"
                yield Difference(path, left, right, why)
                continue
            far, other_far = first.distance_to(pair)
            if other and far != other_far:
                why = f"tie: it lies elsewhere in the memory of {first.path}"
                yield Difference(path, far, other_far, why)

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
        for piece, pair in self._partners.items():
            if piece in self._mates:
                why = f"shared buffer: that of {self._mates[piece].path} of the other"
                yield Difference(pair.path, pair.right, pair.right, why)

    def _is_crossed(self, obj: Any) -> bool:
        kind = type(obj)  # A proxy would ask its target, which may be gone.
        if kind is types.FunctionType:
            return self._walk.must_copy(obj)
        if issubclass(kind, (*WITHOUT_IDENTITY, weakref.ref, *PROXIES)):
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
        return set().union(*(x.buffers(value) for x in _backends.loaded()))


def _array_memory(array: Any) -> set[Any]:
    """Returns where the memory begins that an array looks into."""
    if not array.nbytes or not array.flags.writeable:
        return set()
    return {start_of_memory(array)}


def _overlap(left: Any, right: Any) -> bool:
    """Tells whether writing to one of two arrays writes to the other."""
    if not (isinstance(left, np.ndarray) and isinstance(right, np.ndarray)):
        return False
    if not (left.flags.writeable or right.flags.writeable):
        return False
    return np.may_share_memory(left, right)
