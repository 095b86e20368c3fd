"""A difference, and the comparison of single values, bit by bit."""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.recfunctions import repack_fields

from . import _backends, _keras
from ._errors import shortened


class _Nothing:
    def __repr__(self) -> str:
        return "(nothing)"


NOTHING = _Nothing()


@dataclass(frozen=True)
class Difference:
    """One thing in which two models differ.

    Attributes:
        path: Where, from the model's name downwards.
        left: What the first model has there.
        right: What the second model has there.
        why: What kind of difference it is, in words.
    """

    path: str
    left: Any
    right: Any
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}: {_show(self.left)} | {_show(self.right)}"


def _show(value: Any) -> str:
    if isinstance(value, _keras.Layer):
        return f"<{type(value).__name__} {value.name}>"
    if isinstance(value, _keras.Variable):
        return f"<Variable {value.path} {tuple(value.shape)}>"
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"array{value.shape} {value.dtype}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # Whatever a class raises.
        text = f"<{type(value).__name__}>"
    return shortened(text)


def same_atom(left: Any, right: Any) -> bool:
    """Compares values exactly: `1`, `1.0` and `True` differ, NaN equals itself."""
    if left is right:
        return True
    return type(left) is type(right) and bool(exact(left) == exact(right))


def exact(value: Any) -> Any:
    """Returns something that equals that of another value only if they are the same.

    Python takes many values for equal that are not: `1` and `True`, zeros of either
    sign, ranges over the same numbers. Tuples and frozensets of such values likewise.
    """
    kind = type(value)
    if isinstance(value, float):
        return kind, struct.pack("d", value)
    if isinstance(value, complex):
        return kind, struct.pack("dd", value.real, value.imag)
    for plain in (decimal.Decimal, datetime.datetime, datetime.time):
        if isinstance(value, plain):
            return kind, plain.__repr__(value)  # With all digits, and the time zone.
    if isinstance(value, range):
        return kind, value.start, value.stop, value.step
    if isinstance(value, tuple):
        return kind, tuple(map(exact, value))
    if isinstance(value, frozenset):
        return kind, frozenset(map(exact, value))
    return kind, value


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """Returns the exact value of a variable or tensor as an array."""
    if isinstance(value, _keras.Variable):
        value = _backends.active().whole(_keras.raw_value(value))
    try:
        return _keras.to_numpy(value)
    except TypeError:  # Keras does not ask for the bits of numbers that NumPy has not.
        return _backends.active().to_array(value)


def named_values(
    variable: Any, name: str
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yields the exact value of a variable with a name; of each replica, if it has any.

    They need not agree, and what a variable says is their sum, or one of them.
    """
    parts = _backends.active().replicas(_keras.raw_value(variable))
    for i, part in enumerate(parts):
        yield f"{name}.<replica {i}>" if len(parts) > 1 else name, to_numpy(part)


def compare_arrays(left: Any, right: Any, path: str) -> Iterator[Difference]:
    """Yields a difference unless shape, dtype and every bit are the same."""
    mine, other = _packed(to_numpy(left)), _packed(to_numpy(right))
    if mine.shape != other.shape:
        yield Difference(path, mine.shape, other.shape, "shape")
    elif mine.dtype != other.dtype:
        yield Difference(path, str(mine.dtype), str(other.dtype), "dtype")
    elif mine.dtype == object:
        if mine.tolist() != other.tolist():
            yield Difference(path, mine, other, "value")
    elif mine.tobytes() != other.tobytes():
        yield Difference(path, mine, other, _how_far(mine, other))
    elif isinstance(left, np.ma.MaskedArray):
        yield from compare_arrays(left.mask, right.mask, f"{path}.mask")


def _packed(array: Any) -> Any:
    """Returns a structured array without the bytes between its fields."""
    return array if array.dtype.names is None else repack_fields(array, recurse=True)


def _how_far(left: Any, right: Any) -> str:
    mine, other = (np.frombuffer(x.tobytes(), "uint8") for x in (left, right))
    differing = (mine != other).reshape(left.size, -1).any(axis=1)
    text = f"{int(differing.sum())} of {left.size} numbers"
    if np.issubdtype(left.dtype, np.floating):
        pair = [x.ravel()[differing].astype("float64") for x in (left, right)]
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(pair[0] - pair[1])
        lost = int(np.isnan(apart).sum())
        if lost:
            text += f", {lost} with NaN"
        farthest = np.nanmax(apart) if lost < apart.size else 0.0
        if farthest:
            text += f", by up to {farthest:.3g}"
        elif not lost:
            text += ", by their bits alone"
    return text
