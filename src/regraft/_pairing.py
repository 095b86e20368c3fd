"""Which variable of a layer takes the place of which variable of another layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from . import _keras
from ._identity import address


def paired_variables(old: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each variable of a layer with the one that takes its place.

    Variables of the same name belong together. Between layers of one class they may
    have other shapes, as the layer may have been built for another input. A variable
    that has no counterpart stands for itself.
    """
    inside, others = _keras.all_layers(old), _keras.all_layers(new)
    partners: dict[int, Any] = {}
    if [type(x) for x in inside] == [type(x) for x in others]:
        for one, other in zip(inside, others, strict=True):
            mine, theirs = _keras.own_variables(one), _keras.own_variables(other)
            _pair_by_name(mine, theirs, partners, same_shape=False)
    same_class = type(old) is type(new)
    _pair_by_name(old.variables, new.variables, partners, same_shape=not same_class)
    _pair_by_position(old.variables, new.variables, partners)
    for variable in old.variables:
        yield variable, partners.get(address(variable), variable)


def named_alike(olds: list[Any], news: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields each new variable, behind the old one of its name or None.

    What has no old one of the very same name may have been numbered anew.
    """
    names = {v.name for v in news}
    free: dict[str, list[Any]] = defaultdict(list)
    for old in olds:
        free[old.name if old.name in names else _keras.own_name(old)].append(old)
    for new in news:
        waiting = free[new.name] or free[_keras.own_name(new)]
        yield waiting.pop(0) if waiting else None, new


def _pair_by_name(
    olds: list[Any], news: list[Any], partners: dict[int, Any], *, same_shape: bool
) -> None:
    """Pairs what has one name, where that says which is which."""
    waiting, free = _by_name(olds), _by_name(news)
    for name, variables in waiting.items():
        found = free.get(name, [])
        if len(found) != len(variables):
            continue
        for variable, partner in zip(variables, found, strict=True):
            fits = not same_shape or _keras.kind_of(variable) == _keras.kind_of(partner)
            # Whole numbers that need a scale are no kernel.
            if fits and variable.dtype == partner.dtype:
                partners.setdefault(address(variable), partner)


def _pair_by_position(
    olds: list[Any], news: list[Any], partners: dict[int, Any]
) -> None:
    """Pairs what is left of two layers whose variables are alike, one by one."""
    if [_keras.kind_of(v) for v in olds] != [_keras.kind_of(v) for v in news]:
        return
    taken = {address(partner) for partner in partners.values()}
    for variable, partner in zip(olds, news, strict=True):
        if address(partner) not in taken:
            partners.setdefault(address(variable), partner)


def _by_name(variables: list[Any]) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for variable in variables:
        found[_keras.own_name(variable)].append(variable)
    return found
