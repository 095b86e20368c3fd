"""What a layer keeps beside variables and layers: numbers, shapes, arrays."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Container, Iterator
from typing import Any

import keras
import numpy as np

from . import _keras
from ._atoms import ATOMS
from ._identity import address

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


# Makes another ghost, or None, which draws other numbers for each number that it is
# given, and the same ones in each turn.
Remake = Callable[[int, int], Any]


def take_drawn_data(
    layer: Any, ghost: Any, make: Remake, shared: Container[int]
) -> None:
    """Takes over what a ghost has worked out from the weights that it drew.

    A reservoir is scaled by its spectral radius, a lottery ticket remembers its start.
    What is the same for other draws does not follow from them, and is left as it is.

    Args:
        layer: A layer that has the weights of the ghost.
        ghost: The ghost.
        make: Makes another one.
        shared: The ids of arrays that are not the layer's alone.
    """
    own, made = vars(layer), _keras.own_state(ghost)
    drawn = [
        name
        for name, value in made.items()
        if name in own and own[name] is not value
        if _holds_numbers(value) and not same_data(own[name], value)
        if not any(address(x) in shared for x, _ in arrays_alike(own[name], own[name]))
    ]
    counted = _counted([name for name in drawn if not _has_arrays(made[name])], make)
    drawn = [name for name in drawn if name not in counted]
    for number in range(_DRAWS if drawn else 0):
        other = vars(make(number, 0) or ghost)
        for name in drawn:
            if name in other and not same_data(other[name], made[name]):
                own[name] = _taken(own[name], made[name])
        # An index, or a mask, may be the same by chance; a fraction hardly.
        drawn = [name for name in drawn if _is_countable(made[name])]
        drawn = [name for name in drawn if not same_data(own[name], made[name])]
        if not drawn:
            return


def _counted(names: list[str], make: Remake) -> set[str]:
    """Returns what is another one in each ghost, whatever that draws.

    The id of a layer, a name, the number of a block among all that were ever made.
    """
    if not names:
        return set()
    one, other = make(0, 0), make(0, 1)  # Both live, and so do not share an id.
    if one is None or other is None:
        return set()
    pairs = zip(_keras.own_variables(one), _keras.own_variables(other), strict=False)
    if not all(same_data(a.value, b.value) for a, b in pairs):
        return set()  # They draw from what cannot be made to draw the same again.
    mine, its = vars(one), vars(other)
    return {n for n in names if not same_data(mine.get(n), its.get(n))}


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


def arrays_alike(left: Any, right: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the arrays of NumPy that lie in the same places of two data."""
    stack, seen = [(left, right)], set[int]()
    while stack:
        one, other = stack.pop()
        if type(one) is not type(other) or address(one) in seen:
            continue
        if isinstance(one, np.ndarray):
            yield one, other
        elif isinstance(one, list | tuple | dict) and len(one) == len(other):
            seen.add(address(one))
            sides = (x.values() if isinstance(x, dict) else x for x in (one, other))
            stack += zip(*sides, strict=True)


def _has_arrays(value: Any) -> bool:
    if isinstance(value, tuple | list | dict):
        return any(
            map(_has_arrays, value.values() if isinstance(value, dict) else value)
        )
    return array_shape(value) is not None


def _taken(old: Any, new: Any) -> Any:
    """Returns data in the place of others; an array, which others may hold, stays."""
    if type(old) is type(new) and isinstance(old, dict) and len(old) == len(new):
        # The keys may be names, of which the ghost has others.
        values = map(_taken, old.values(), new.values())
        old.update(dict(zip(old, values, strict=True)))
        return old
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
