"""How an object is known again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any

# Python tells audit hooks of each `id()`, and from version 3.12 on many programs have
# one, as torch imports filelock: `id` takes ten times as long there, and was a quarter
# of a clone. Nobody is told of the hash that `object` gives, which is made of the same.
IS_AUDITED = sys.version_info >= (3, 12)

# Returns a number that no other living object has.
address: Callable[[object], int] = object.__hash__ if IS_AUDITED else id

_BITS = sys.maxsize.bit_length() + 1


def address_by_id(number: int) -> int:
    """Returns the address of the object whose `id` this is."""
    if not IS_AUDITED:
        return number
    turned = (number >> 4) | (number << (_BITS - 4)) & ((1 << _BITS) - 1)
    return turned - (1 << _BITS) if turned >> (_BITS - 1) else turned


# Ids are large numbers; hardly anything else that models hold is.
LARGE = 1 << 32


def may_be_id(value: object) -> bool:
    """Tells whether a value looks like the `id` of an object: no copy can keep it."""
    return type(value) is int and value > LARGE


def may_hold_ids(values: Iterable[object]) -> bool:
    """Tells whether there are ids among values, or in tuples and frozensets of them."""
    for value in values:
        kind = type(value)
        if kind is int:
            if value > LARGE:  # type: ignore[operator]
                return True
        elif (kind is tuple or kind is frozenset) and may_hold_ids(value):  # type: ignore[arg-type]
            return True
    return False


def with_new_ids(value: Any, memo: Mapping[int, Any]) -> Any:
    """Returns a number, or a tuple or frozenset, with the ids of copies."""
    kind = type(value)
    if kind is int:
        return new_id(value, memo)
    if (kind is tuple or kind is frozenset) and may_hold_ids(value):
        parts = [with_new_ids(part, memo) for part in value]
        # Most large numbers are no ids. Who holds the same tuple goes on to do so.
        return value if all(map(is_, parts, value)) else kind(parts)
    return value


def replace_values(container: Any, translate: Callable[[Any], Any]) -> bool:
    """Translates the values of a list or dict, past what its class does with them.

    Returns:
        Whether any of them is another one now.
    """
    is_list = isinstance(container, list)
    base: Any = list if is_list else dict
    items = enumerate(list.__iter__(container)) if is_list else dict.items(container)
    changed = [(k, new) for k, old in items if (new := translate(old)) is not old]
    for key, new in changed:
        base.__setitem__(container, key, new)
    return bool(changed)


def new_id(number: int, memo: Mapping[int, Any]) -> int:
    """Returns the `id` of an object's copy, given that of the object.

    Args:
        number: The `id` of an object, or any number, which is returned as it is.
        memo: Copies, by the addresses of the originals.
    """
    place = address_by_id(number)
    return id(memo[place]) if place in memo else number
