"""Finds out what became of every variable when a model was built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _keras
from .._identity import address
from .assemble import Assembly
from .fates import Fate, Lineage, What
from .fitting import Fitting
from .table import Table


def trace(
    table: Table,
    assembly: Assembly,
    fitting: Fitting,
    replaced: Mapping[int, Any],
    new: Any,
    notes: tuple[str, ...],
) -> Lineage:
    """Returns the fate of each variable of a new model, and of those it lacks.

    Args:
        table: What the model was built of.
        assembly: Knows what was copied.
        fitting: Knows what had to change its shape.
        replaced: For the id of an old variable the one in its place, if that is not
            its copy.
        new: The model.
        notes: What else there is to say.
    """
    old, variables = _old_variables(table), new.variables
    sources = _sources(old, assembly, fitting, replaced)
    given, changed = _given(table, assembly), fitting.fates
    fates = []
    for variable in variables:
        key, path, shape = address(variable), variable.path, _keras.shape_of(variable)
        source = sources.get(key)
        what: What = changed.get(key, "copied")
        if key in assembly.given or (source is None and key in given):
            what = "given"
        elif source is None:
            what = "fresh"
        if source is None:
            fates.append(Fate(path, what, None, None, shape))
        else:
            before = shape if what == "copied" else _keras.shape_of(source)
            fates.append(Fate(path, what, source.path, before, shape))
    alive = {address(v) for v in variables}
    used = {address(source) for key, source in sources.items() if key in alive}
    for variable in old:
        if address(variable) not in used:
            shape = _keras.shape_of(variable)
            fates.append(Fate(variable.path, "dropped", None, shape))
    return Lineage(tuple(fates), notes)


def _old_variables(table: Table) -> list[Any]:
    if table.root in table.read:
        return list(table.read[table.root].operation.variables)
    inside = [table[call.part].operation for call in table.scope.calls]
    models = [x for x in inside if isinstance(x, _keras.Model)]  # They were joined.
    return [v for model in models for v in model.variables]


def _sources(
    old: list[Any], assembly: Assembly, fitting: Fitting, replaced: Mapping[int, Any]
) -> dict[int, Any]:
    """Returns, for the ids of new variables, those whose values they have."""
    found = dict(fitting.sources)
    for copies in (*assembly.memos.values(), replaced):
        if copies:
            twins = [copies.get(address(variable)) for variable in old]
            pairs = zip(twins, old, strict=True)
            found.update({address(twin): v for twin, v in pairs if twin is not None})
    return found


def _given(table: Table, assembly: Assembly) -> set[int]:
    """Returns the ids of variables that came with new layers."""
    memo, found = assembly.memo, set()
    for key in table.reached:
        part = table[key]
        if part.is_new and isinstance(part.operation, _keras.Layer):
            twins = [memo.get(address(v)) for v in part.operation.variables]
            found |= {address(twin) for twin in twins if twin is not None}
    return found
