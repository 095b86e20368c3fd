"""Works out what edited calls return, before anything is built.

A call is tried on a copy of its operation that has forgotten its variables, with
symbolic tensors that belong to no graph: nothing of the model is touched. The trial
goes on downstream as long as what comes out is different from what came out before.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from .. import _keras
from .._errors import UsageError, explain
from .calls import Call, Scope
from .slots import Slot, put, slots_in
from .table import Table, scopes
from .trials import attempt, cannot_call, like_input, shapes_match


def refresh(
    table: Table,
    key: int,
    numbers: Iterable[int],
    *,
    verb: str,
    before: Sequence[Any] | None = None,
    quiet: bool = False,
    everywhere: frozenset[int] = frozenset(),
) -> Table:
    """Returns the table with the outputs of changed calls known again.

    Args:
        table: The table.
        key: The model in which calls were changed.
        numbers: The calls.
        verb: What was done, for messages.
        before: What the model returned before its calls were changed; by default
            what it returns now.
        quiet: Whether models that call this one are left as they are.
        everywhere: Calls that were changed in any model: where a model inside is
            called, they are worked out before it is said what it returns.
    """
    if before is None:
        before = _tensors(table.scope_of(key), table.scope_of(key).outputs)
    stale, moved = {*numbers, *everywhere}, set[int]()
    known: dict[int, Call] = {}
    for call in table.scope_of(key).calls:
        if call.number in stale or any(slot.call in moved for slot in call.slots):
            _check_used(table, key, known, call.slots, table[call.part].name, verb)
            specs = {s: known[s.call].outputs[s.output] for s in call.slots}
            table, outputs = _outputs(table, key, call, specs, verb, everywhere)
            if not alike(outputs, call.outputs):
                moved.add(call.number)
            call = dataclasses.replace(call, outputs=tuple(outputs))
        known[call.number] = call
    calls = tuple(known.values())
    for call in calls:
        _check_used(table, key, known, call.slots, table[call.part].name, verb)
    ends = slots_in(table.scope_of(key).outputs)
    _check_used(table, key, known, ends, "the outputs", verb)
    scope = table.scope_of(key).having(calls)
    table = table.having(key, scope=scope)
    if quiet or alike(before, _tensors(scope, scope.outputs)):
        return table
    holding = _holding(table, key)
    for outer in list(scopes(table)):
        callers = [c.number for c in table.scope_of(outer).calls if c.part in holding]
        if callers and outer != key:
            table = refresh(table, outer, callers, verb=verb)
    return table


def _holding(table: Table, key: int) -> set[int]:
    """Returns a part and the layers that hold it, which may be called in its place."""
    found = {key}
    stack = [key]
    while stack:
        inside = stack.pop()
        for holder in table.reached:
            if inside in table[holder].held and holder not in found:
                found.add(holder)
                stack.append(holder)
    return found


def _outputs(
    table: Table,
    key: int,
    call: Call,
    specs: dict[Slot, Any],
    verb: str,
    everywhere: frozenset[int],
) -> tuple[Table, list[Any]]:
    part = table[call.part]
    if isinstance(part.operation, _keras.InputLayer):
        return table, list(call.outputs)
    if part.scope is not None and (
        part.operation is None or call.part in table.changed
    ):
        return _through(table, call, specs, verb, everywhere)
    alone = {slot: _keras.detached(spec) for slot, spec in specs.items()}
    args, kwargs = put(call.arguments, alone)
    given = _keras.tensors_in((args, kwargs))
    if part.scope is not None and not _fit(given, part.scope):
        return _through(table, call, specs, verb, everywhere)
    with _keras.quiet_globals(draws=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Nothing is drawn for a trial, and what it assigns is forgotten.
            with _keras.no_memory():
                return table, attempt(table, key, call, (args, kwargs), verb)
        except UsageError:
            raise
        except Exception as error:
            # Its `build()` may make variables of values, which need memory.
            with suppress(Exception):
                return table, attempt(table, key, call, (args, kwargs), verb)
            tensors = list(specs.values())
            raise cannot_call(table, key, call, tensors, error, verb) from error


def _through(
    table: Table,
    call: Call,
    specs: dict[Slot, Any],
    verb: str,
    everywhere: frozenset[int],
) -> tuple[Table, list[Any]]:
    """Follows a call into a model whose calls, or inputs, are not as they were."""
    key = call.part
    scope = table.scope_of(key)
    given = [specs[slot] for slot in call.slots]
    slots = slots_in(scope.inputs)
    if len(given) != len(slots):
        raise UsageError(
            explain(
                f"`{verb}`: {table[key].name!r} is called with another number of "
                "tensors than it has inputs.",
                where=table[key].name,
                expected=f"{len(slots)} tensor(s)",
                received=f"{len(given)}",
                fix="change the inputs of the inner model and its calls together",
            )
        )
    stale = [c.number for c in scope.calls if c.number in everywhere]
    if not _fit(given, scope):
        for slot, tensor in zip(slots, given, strict=True):
            table = with_input(table, key, slot, like_input(scope, slot, tensor))
        stale += [c.number for c in scope.calls if set(c.slots) & set(slots)]
    if stale:
        # The call that led here gets the outputs: its model need not be told.
        table = refresh(table, key, stale, verb=verb, quiet=True, everywhere=everywhere)
        scope = table.scope_of(key)
    return table, _tensors(scope, scope.outputs)


def with_input(table: Table, key: int, slot: Slot, tensor: Any) -> Table:
    """Returns the table with another input in place of one of a model's."""
    scope = table.scope_of(key)
    call = scope.by_number[slot.call]
    node = _keras.producer(tensor)
    table, part = table.adding(node.operation, name=table[call.part].name)
    new = dataclasses.replace(
        call, part=part, node=node, outputs=(tensor,), read=call.arguments
    )
    calls = [new if c.number == slot.call else c for c in scope.calls]
    return table.having(key, scope=table.scope_of(key).having(calls))


def _fit(given: list[Any], scope: Scope) -> bool:
    """Tells whether tensors may be given to a model as it is."""
    wanted = _tensors(scope, scope.inputs)
    return len(given) == len(wanted) and all(
        shapes_match(a.shape, b.shape) for a, b in zip(given, wanted, strict=True)
    )


def _tensors(scope: Scope, struct: Any) -> list[Any]:
    return [scope.tensor(slot) for slot in slots_in(struct)]


def alike(some: Iterable[Any], others: Iterable[Any]) -> bool:
    """Tells whether symbolic tensors are the same to whoever is given them."""
    return [_spec(x) for x in some] == [_spec(x) for x in others]


def _spec(tensor: Any) -> tuple[Any, ...]:
    is_masked = _keras.mask_of(tensor) is not None
    return tensor.shape, tensor.dtype, bool(tensor.sparse), is_masked


def _check_used(
    table: Table,
    key: int,
    made: dict[int, Call],
    slots: Iterable[Slot],
    user: str,
    verb: str,
) -> None:
    for slot in slots:
        maker = made[slot.call]
        if slot.output >= len(maker.outputs):
            raise UsageError(
                explain(
                    f"`{verb}`: {table[maker.part].name!r} returns too few tensors.",
                    where=f"{table[key].name}/{table[maker.part].name}",
                    expected=f"at least {slot.output + 1}: output {slot.output} is "
                    f"used by {user}",
                    received=f"{len(maker.outputs)}",
                    fix="use an operation that returns as many as the old one",
                )
            )
