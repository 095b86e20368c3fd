"""What a layer keeps beside variables and layers: numbers, shapes, arrays."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from . import _keras
from ._atoms import ATOMS

_ARRAYS = np.ndarray | np.generic
_WORDS = frozenset({str, bytes, bool, type(None)})


def is_data(value: Any) -> bool:
    """Tells whether a value says something by itself: numbers, shapes, arrays."""
    if type(value) in ATOMS or isinstance(value, _ARRAYS | keras.InputSpec):
        return True
    if isinstance(value, tuple | list):
        return all(map(is_data, value))
    if isinstance(value, dict):
        return all(map(is_data, (*value, *value.values())))
    return not isinstance(value, _keras.Variable) and bool(keras.ops.is_tensor(value))


def same_data(left: Any, right: Any) -> bool:
    """Tells whether data are the same to the last bit."""
    if isinstance(left, keras.InputSpec) and isinstance(right, keras.InputSpec):
        return repr(left) == repr(right)
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(same_data, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            same_data(left[key], right[key]) for key in left
        )
    if array_shape(left) is None or array_shape(right) is None:
        return bool(left is right or (type(left) is type(right) and left == right))
    return _same_bits(_keras.to_numpy(left), _keras.to_numpy(right))


def _same_bits(left: Any, right: Any) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.hasobject:
        return bool(np.array_equal(left, right))
    mine, other = (np.ascontiguousarray(x).reshape(-1) for x in (left, right))
    return bool(np.array_equal(mine.view(np.uint8), other.view(np.uint8)))


def array_shape(value: Any) -> tuple[int, ...] | None:
    """Returns the shape of an array or tensor; None for anything else."""
    is_array = isinstance(value, _ARRAYS) or keras.ops.is_tensor(value)
    return tuple(value.shape) if is_array else None


def take_drawn_data(layer: Any, ghost: Any, make: Callable[[int], Any]) -> None:
    """Takes over what a ghost has worked out from the weights that it drew.

    A reservoir is scaled by its spectral radius, a lottery ticket remembers its start.
    What is the same for other draws does not follow from them, and is left as it is.

    Args:
        layer: A layer that has the weights of the ghost.
        ghost: The ghost.
        make: Makes another one, or None, which draws other numbers for each number
            that it is given.
    """
    own, made = vars(layer), _keras.own_state(ghost)
    drawn = [
        name
        for name, value in made.items()
        if name in own and own[name] is not value
        if _holds_numbers(value) and not same_data(own[name], value)
    ]
    for number in range(_DRAWS if drawn else 0):
        other = vars(make(number) or ghost)
        for name in drawn:
            if name in other and not same_data(other[name], made[name]):
                own[name] = _taken(own[name], made[name])
        # An index, or a mask, may be the same by chance; a fraction hardly.
        drawn = [name for name in drawn if _is_countable(made[name])]
        drawn = [name for name in drawn if not same_data(own[name], made[name])]
        if not drawn:
            return


# How often others are asked for what may be the same by chance.
_DRAWS = 4


def _is_countable(value: Any) -> bool:
    """Tells whether data are made of few values: whole numbers, truths."""
    if isinstance(value, tuple | list | dict):
        return all(
            map(_is_countable, value.values() if isinstance(value, dict) else value)
        )
    if array_shape(value) is not None:
        return _keras.to_numpy(value).dtype.kind in "biu"
    return not isinstance(value, float | complex)


def _taken(old: Any, new: Any) -> Any:
    """Returns data in the place of others; an array, which others may hold, stays."""
    are_arrays = type(old) is type(new) is np.ndarray and old.flags.writeable
    if not are_arrays or (old.shape, old.dtype) != (new.shape, new.dtype):
        return new
    old[...] = new
    return old


def _holds_numbers(value: Any) -> bool:
    """Tells whether there are numbers in data that may have been drawn."""
    if isinstance(value, tuple | list | dict):
        items = value.values() if isinstance(value, dict) else value
        # A vocabulary is long, and soon told from numbers.
        if _WORDS.issuperset(map(type, items)):
            return False
        return is_data(value) and any(map(_holds_numbers, items))
    if type(value) in ATOMS:
        return isinstance(value, numbers.Number)
    # What can be assigned to is a variable, of Keras or TensorFlow.
    return array_shape(value) is not None and not hasattr(value, "assign")
