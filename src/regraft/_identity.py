"""How an object is known again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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


def new_id(number: int, memo: Mapping[int, Any]) -> int:
    """Returns the `id` of an object's copy, given that of the object.

    Args:
        number: The `id` of an object, or any number, which is returned as it is.
        memo: Copies, by the addresses of the originals.
    """
    place = address_by_id(number)
    return id(memo[place]) if place in memo else number
