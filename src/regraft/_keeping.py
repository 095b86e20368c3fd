"""`keep=`: what both models share instead of one of them having a copy."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator, MappingView
from typing import Any

from . import _keras
from ._atoms import ATOMS
from ._core import Keep
from ._errors import UsageTypeError, explain
from ._identity import address
from ._parts import held_by
from ._walk import Walk

# What names several things. Anything else is one object, a dict as well.
_COLLECTIONS = (tuple, list, set, frozenset, deque, MappingView)

_PREDICATES = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)


def named(model: Any, keep: Any) -> tuple[Any, ...]:
    """Returns what `keep=` names, one by one. An iterator of the model is an object."""
    if keep is None:
        return ()
    is_several = isinstance(keep, _COLLECTIONS) or (
        isinstance(keep, Iterator) and not held_by(model, [keep])
    )
    found = tuple(keep) if is_several else (keep,)
    for one in found:
        if type(one) in ATOMS and not isinstance(one, type):
            raise _names_nothing(one)
    return found


def keeper(model: Any, keep: tuple[Any, ...]) -> Keep | None:
    """Turns `keep=` into one question, or None if nothing is to be kept.

    A class means its instances. A function is a predicate, unless the model holds it.
    Everything else is an object, compared by identity.

    Args:
        model: The model, which is never kept itself.
        keep: What is named: objects, classes, predicates.
    """
    if not keep:
        return None
    kinds = tuple(one for one in keep if isinstance(one, type))
    asked = [one for one in keep if isinstance(one, _PREDICATES)]
    held = held_by(model, asked) if asked else set()
    asked = [one for one in asked if address(one) not in held]
    objects = {address(one) for one in keep}

    def kept(obj: Any) -> bool:
        if obj is model:
            return False
        if address(obj) in objects or isinstance(obj, kinds):
            return True
        return any(bool(ask(obj)) for ask in asked)

    return kept


def _names_nothing(value: Any) -> UsageTypeError:
    is_name = isinstance(value, str)
    find = f"`model.get_layer({value!r})`" if is_name else "`model.layers[0]`"
    return UsageTypeError(
        explain(
            "`keep=` names something that both models share in any case.",
            where="argument `keep`",
            expected="objects of the model, classes or predicates",
            received=repr(value),
            fix=f"pass the object itself, such as {find}",
        )
    )


def share_parts_of_kept(walk: Walk, keep: Keep) -> None:
    """Lets what a kept layer consists of stand for itself, however it is reached.

    The optimizer and other layers hold its variables, too.
    """
    kept: list[Any] = []

    def noting(obj: Any) -> bool:
        is_kept = keep(obj)
        if is_kept and isinstance(obj, _keras.Layer):
            kept.append(obj)
        return is_kept

    Walk(walk.root, keep=noting).survey()
    for layer in kept:
        stand_for_themselves(walk, layer.variables)
        parts = [x for x in _keras.all_layers(layer) if x is not walk.root]
        for part in parts:
            for held in (part, *_keras.held_streams_and_metrics(part)):
                walk.remember(held, held)


def stand_for_themselves(walk: Walk, variables: Iterable[Any]) -> None:
    """Lets a copy hold the very variables of its original."""
    for variable in variables:
        walk.remember(variable, variable)
        value = _keras.raw_value(variable)
        walk.remember(value, value)
