"""Whether a model on other inputs computes what it was made for.

What cannot be called on them is told by the verb that is to blame. Some calls can be
made, and mean something else: these are looked for when the model is built, as another
verb may have mended them.
"""

from __future__ import annotations

from typing import Any

from .. import _keras, _shape_checks
from .._ghosts import on_same_variables
from .._rows import Rows, check_rows, rows_before
from .slots import put, slots_in
from .table import Table, scopes
from .trials import arguments_before


def check_calls(table: Table) -> None:
    """Refuses calls that compute something else on other inputs, without a word."""
    if not _has_other_inputs(table):
        return
    for key in scopes(table):
        scope = table.scope_of(key)
        for call in scope.calls:
            before = arguments_before(table, call)
            if before is None or call.node.is_input:
                continue
            specs = {s: _keras.detached(scope.tensor(s)) for s in call.slots}
            where = f"{table[key].name}/{table[call.part].name}"
            made = _shape_checks.Call(
                table[call.part].operation,
                where,
                before,
                put(call.arguments, specs),
                sources=[],
            )
            if made.is_reshaped:
                old = [x.shape for x in call.node.outputs]
                _shape_checks.check(made, old, [x.shape for x in call.outputs])


def rows_of(table: Table) -> Rows | None:
    """Runs the model that was read on a batch, if its inputs have changed."""
    if not _has_other_inputs(table):
        return None
    model = on_same_variables(table.read[table.root].operation).run()
    return rows_before(model, _keras.inner_graph(model).input, _inputs(table))


def check_rows_of(model: Any, before: Rows | None) -> None:
    """Refuses a model that mixes rows which the model that was read kept apart."""
    if before is not None and len(model.outputs) == len(before.made):
        with _keras.quiet_globals():
            check_rows(model, before)


def _has_other_inputs(table: Table) -> bool:
    if table.root not in table.read or table.read[table.root].operation is None:
        return False
    graph = _keras.inner_graph(table.read[table.root].operation)
    old, now = ([x.shape for x in inputs] for inputs in (graph.inputs, _inputs(table)))
    return len(old) == len(now) and old != now


def _inputs(table: Table) -> list[Any]:
    return [table.scope.tensor(slot) for slot in slots_in(table.scope.inputs)]
