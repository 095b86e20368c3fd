"""What a copy may share with its original: values that nobody can change."""

from __future__ import annotations

import contextvars
import datetime
import decimal
import enum
import fractions
import inspect
import logging
import numbers
import pathlib
import re
import sys
import types
import uuid

import numpy as np

# Exact types, for the quick test that most attributes pass.
ATOMS: frozenset[type] = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        type,
        range,
        type(Ellipsis),
        type(NotImplemented),
        types.ModuleType,
        types.CodeType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        inspect.Signature,
        inspect.Parameter,
        re.Pattern,
        decimal.Decimal,
        fractions.Fraction,
        uuid.UUID,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
    }
)

NAMES: frozenset[type] = frozenset({str})

# Whole families: instances of subclasses are shared as well.
_SHARED_FAMILIES: tuple[type, ...] = (
    type,
    types.ModuleType,
    types.GenericAlias,
    types.UnionType,
    enum.Enum,
    np.dtype,
    datetime.tzinfo,
    logging.Logger,
    contextvars.ContextVar,
)

# Values whose classes do not say, when asked how to copy one, what else is on it.
_VALUES: tuple[type, ...] = (
    pathlib.PurePath,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
)


def is_shared_class(kind: type) -> bool:
    """Tells whether instances of a class need no copy."""
    if kind in ATOMS or issubclass(kind, _SHARED_FAMILIES):
        return True
    if issubclass(kind, np.void):  # A row of a structured array can be written to.
        return False
    # A value that carries no attributes of its own is nothing but the value.
    is_value = issubclass(kind, (np.generic, numbers.Number, *_VALUES))
    is_bare = kind.__dictoffset__ == 0 and not _has_own_slots(kind)
    return (is_value and is_bare) or kind.__module__ == "typing"


def is_value_class(kind: type) -> bool:
    """Tells whether instances of a class are values, apart from their attributes."""
    return issubclass(kind, _VALUES)


def _has_own_slots(kind: type) -> bool:
    """Tells whether a class, not one of Python's, has places for attributes."""
    return any(
        isinstance(member, types.MemberDescriptorType)
        for base in kind.__mro__
        if not is_of_a_common_library(base)
        for member in vars(base).values()
    )


def is_of_a_common_library(kind: type) -> bool:
    """Tells whether a class is one of Python's or NumPy's own."""
    return kind.__module__.partition(".")[0] in _WELL_KNOWN


_WELL_KNOWN = {*sys.stdlib_module_names, "numpy", "ml_dtypes"}
