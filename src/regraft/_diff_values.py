"""What objects say of themselves, where a comparison has to ask.

Anything may be raised by a class that is asked for its value.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from operator import attrgetter
from typing import Any

import numpy as np

from . import _backends
from ._atoms import is_value_class
from ._makers import PROXIES
from ._values import NOTHING, compare_arrays, same_atom


def opaque_contents(obj: Any) -> Any:
    """Returns what a framework says an opaque object of its own holds, or None."""
    for framework in _backends.loaded():
        held = framework.contents(obj)
        if held is not None:
            return held
    return None


def holds_objects(obj: Any) -> bool:
    """Tells whether an array holds objects instead of numbers."""
    return isinstance(obj, np.ndarray) and obj.dtype.hasobject


def differences_of_arrays(left: Any, right: Any, path: str) -> Any:
    """Returns in what numbers two objects differ; None if they do not say theirs."""
    if not all(hasattr(type(side), "__array__") for side in (left, right)):
        return None
    try:
        return list(compare_arrays(left, right, path))
    except Exception:  # Whatever a class raises.
        return None


def ask(array: Any, name: str) -> Any:
    """Returns what an array says of itself by a name, if that means anything to it."""
    try:
        return attrgetter(name)(array)
    except Exception:  # Whatever a class raises.
        return None


def is_of_a_framework(kind: type) -> bool:
    """Tells whether a class is one of those that hold a framework's numbers."""
    return kind.__module__.split(".")[0] in ("jax", "jaxlib", "tensorflow", "torch")


def means_the_same(left: Any, right: Any) -> bool:
    """Compares what models share, of which there may be one for each value."""
    kind: Any = type(left)
    if isinstance(left, float | complex) or is_value_class(kind):
        return same_atom(left, right)
    if isinstance(left, np.generic):
        return bool(left.dtype == right.dtype and left.tobytes() == right.tobytes())
    if kind.__eq__ is not object.__eq__:
        with suppress(Exception):  # Whatever a class raises that has no one answer.
            return bool(left == right)
    return kind.__repr__ is object.__repr__ or repr(left) == repr(right)


def is_weak(obj: Any) -> bool:
    """Tells whether an object is a weak reference or a proxy."""
    return issubclass(type(obj), (weakref.ref, *PROXIES))


def content(cell: Any) -> Any:
    """Returns what a function finds in a cell of its closure."""
    try:
        return cell.cell_contents
    except ValueError:  # An empty cell.
        return NOTHING
