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
import types
import uuid
from functools import cached_property

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
        property,
        inspect.Signature,
        inspect.Parameter,
        re.Pattern,
        cached_property,
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
    np.generic,
    np.dtype,
    np.ufunc,
    pathlib.PurePath,
    datetime.tzinfo,
    logging.Logger,
    contextvars.ContextVar,
)


def is_shared_class(kind: type) -> bool:
    """Tells whether instances of a class need no copy."""
    if kind in ATOMS or issubclass(kind, _SHARED_FAMILIES):
        return True
    # A number class that carries no attributes of its own is just a number.
    plain_number = issubclass(kind, numbers.Number) and kind.__dictoffset__ == 0
    return plain_number or kind.__module__ == "typing"
