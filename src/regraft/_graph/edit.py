"""The verbs that change what a model calls: replace, wrap, append, rename.

Each is a pure function of a table. What it changes is tried at once, on copies, so
that a bad edit is refused here and not when the model is built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras

from .. import _keras
from .._errors import UsageError, explain
from .._identity import address
from . import infer, trials
from .calls import Call, next_number
from .places import by_part, calls_of, held, refuse_inputs
from .slots import Slot, put, slots_in
from .splice import (
    Place,
    add_call,
    add_function,
    as_new,
    counted,
    free_name,
    is_operation,
    is_tensor_function,
    lead,
    name_clash,
    names_in,
)
from .table import Table, scopes

# --- replace --------------------------------------------------------------------------


def replace(
    table: Table, places: Sequence[Place], new: Any, *, transfer: bool
) -> Table:
    """Puts something else in the place of layers, each or all together."""
    layers = by_part(places)
    if not callable(new) or is_operation(new) or is_tensor_function(new):
        refuse_inputs(table, places, "replace", "change inputs with `inputs(...)`")
    if len(layers) > 1 and (is_operation(new) or is_tensor_function(new)):
        return _replace_block(table, places, new)
    exchanged = []
    for place in layers:
        old = table[place.part].operation
        if isinstance(old, _keras.InputLayer):
            table, users = _replace_input(table, place, new(old))
            exchanged += users
            continue
        made = as_new(new, old, verb="replace", where=place.path)
        if is_tensor_function(made):
            table = _replace_by_function(table, place, made)
        else:
            table = exchange(table, place, made, transfer=transfer, verb="replace")
            exchanged.append(place.part)
    # Only now: what takes the place of two layers may fit together and not alone.
    return touched(table, exchanged, verb="replace")


def _replace_input(table: Table, place: Place, new: Any) -> tuple[Table, list[int]]:
    """Puts another input in the place of one, together with what takes it.

    Returns:
        The table, and the parts that are given the input.
    """
    is_input = isinstance(new, _keras.KerasTensor)
    if not is_input or _keras.input_layer_of(new) is None or place.scope != table.root:
        raise UsageError(
            explain(
                "`replace`: an input can only become another input.",
                where=place.path,
                expected="an input of the outermost model, and a function that "
                "returns what `keras.Input(...)` returns",
                received=f"{new!r}",
                fix="change inputs with `inputs(...)`; those of models inside follow",
            )
        )
    assert place.call is not None
    slot = Slot(place.call)
    users = [call.part for call in table.scope.consumers(slot)]
    return infer.with_input(table, table.root, slot, new), users


def exchange(
    table: Table, place: Place, new: Any, *, verb: str, transfer: bool = False
) -> Table:
    """Puts an operation where a part is, at all its calls.

    What comes out of these is left open: `touched` works it out. The old part gets a
    key of its own: the new operation may hold the old one.
    """
    key, old = place.part, table[place.part]
    if new is old.operation:
        return table
    parts = dict(table.parts)
    aside = next_number()
    parts[aside] = parts.pop(key)
    read = {aside: table.read[key]} if key in table.read else {}
    table = dataclasses.replace(table, parts=parts, read={**table.read, **read})
    known = table.key_of(new)
    if known is not None and known in _reached_without(table, key):
        raise UsageError(
            explain(
                f"`{verb}`: this layer is already a part of the model.",
                where=place.path,
                expected="a layer that is not in the model, or that holds the old one",
                received=f"{new!r}",
                fix="pass a copy: `regraft.clone(layer)`",
            )
        )
    name = old.name if new.name == old.operation.name else new.name
    for scope in _scopes_calling(table, key):
        if name != old.name:
            name = _name_in_place(table, scope, key, new, verb)
    # What is wrapped at one call only is a part that others do not call.
    table, added = table.adding(new, inside={address(old.operation): aside})
    parts = dict(table.parts)
    part = parts.pop(added)
    source = old.operation if transfer else None
    parts[key] = dataclasses.replace(part, name=name, takes_over=source)
    table = dataclasses.replace(table, parts=parts)
    return _adapt_arguments(table, key, old.operation, new)


def _name_in_place(table: Table, scope: int, key: int, new: Any, verb: str) -> str:
    calls = [call for call in table.scope_of(scope).calls if call.part != key]
    without = table.having(scope, scope=table.scope_of(scope).having(calls))
    return free_name(without, scope, new, verb=verb)


def _reached_without(table: Table, key: int) -> set[int]:
    """Returns what the model is made of besides one part."""
    found: set[int] = set()
    stack = [table.root]
    while stack:
        current = stack.pop()
        if current not in found and current != key:
            found.add(current)
            stack += [k for k in table.inside(current) if k in table.parts]
    return found


def _scopes_calling(table: Table, key: int) -> list[int]:
    return [
        scope
        for scope, part in table.parts.items()
        if part.scope is not None and any(c.part == key for c in part.scope.calls)
    ]


def _adapt_arguments(table: Table, key: int, old: Any, new: Any) -> Table:
    """Gives a layer the tensors of an operation as one list, as layers take them."""
    if isinstance(old, _keras.Layer) or not isinstance(new, _keras.Layer):
        return table
    for scope in _scopes_calling(table, key):
        calls = []
        for call in table.scope_of(scope).calls:
            if call.part == key:
                slots = list(call.slots)
                given: Any = slots[0] if len(slots) == 1 else slots
                call = dataclasses.replace(call, arguments=((given,), {}))
            calls.append(call)
        table = table.having(scope, scope=table.scope_of(scope).having(calls))
    return table


def touched(table: Table, keys: Iterable[int], *, verb: str) -> Table:
    """Works out anew what depends on parts, wherever they are called or held."""
    holders: dict[int, list[int]] = {}
    for holder in table.reached:
        for inside in table.inside(holder):
            holders.setdefault(inside, []).append(holder)
    found: dict[int, None] = {}
    stack = list(keys)
    while stack:
        key = stack.pop()
        if key not in found:
            found[key] = None
            stack += holders.get(key, ())
    # The calls of models inside are worked out where those are called: what changed
    # in two models may fit together and not alone.
    calls = [(s, c) for s in scopes(table) for c in table.scope_of(s).calls]
    stale = frozenset(call.number for _, call in calls if call.part in found)
    called = {call.part for _, call in calls}
    for scope in [s for s in scopes(table) if s not in called]:
        numbers = [c.number for c in table.scope_of(scope).calls if c.number in stale]
        if numbers:
            table = infer.refresh(table, scope, numbers, verb=verb, everywhere=stale)
    return table


def _replace_by_function(table: Table, place: Place, function: Any) -> Table:
    if place.scope is None:
        raise held(place, "replace", "a function of tensors")
    for scope in _scopes_calling(table, place.part):
        for number in [c.number for c in table.scope_of(scope).calls]:
            # As it is now: the layer may be given what it returned before.
            call = table.scope_of(scope).by_number.get(number)
            if call is not None and call.part == place.part:
                table, made = add_function(
                    table, scope, function, call.arguments, verb="replace"
                )
                moved = dict(zip(call.results, made, strict=False))
                table = lead(table, scope, moved, verb="replace")
    return table


def _replace_block(table: Table, places: Sequence[Place], new: Any) -> Table:
    """Puts one operation in the place of several calls that hang together."""
    owners = {place.scope for place in places}
    scope = places[0].scope
    if len(owners) > 1 or scope is None:
        raise _not_a_block(table, places, "layers of different models")
    numbers = {place.call for place in places}
    inside = [c for c in table.scope_of(scope).calls if c.number in numbers]
    if not _hangs_together(inside):
        raise _not_a_block(table, places, "layers without a connection")
    given = list(
        dict.fromkeys(s for c in inside for s in c.slots if s.call not in numbers)
    )
    outside = [c for c in table.scope_of(scope).calls if c.number not in numbers]
    used = [s for c in outside for s in c.slots if s.call in numbers]
    used += [s for s in slots_in(table.scope_of(scope).outputs) if s.call in numbers]
    wanted = list(dict.fromkeys(used))
    first = given[0] if len(given) == 1 else given
    names = {table[call.part].name for call in inside}
    name = new.name if is_operation(new) and new.name in names else None
    if name is not None:
        table = _named_aside(table, scope, inside, name)
    table, made = add_call(table, scope, new, first, verb="replace")
    if len(made) != len(wanted):
        raise UsageError(
            explain(
                "`replace`: the new layer returns another number of tensors than the "
                "block.",
                where=", ".join(place.path for place in places),
                expected=f"{len(wanted)} tensor(s), which other layers use",
                received=f"{len(made)} from {new!r}",
                fix="return as many, in the order in which they are used",
            )
        )
    return lead(table, scope, dict(zip(wanted, made, strict=True)), verb="replace")


def _named_aside(table: Table, scope: int, calls: list[Call], name: str) -> Table:
    for call in calls:
        if table[call.part].name == name:
            table = table.having(call.part, name=f"{name}_replaced")
    return table


def _hangs_together(calls: list[Call]) -> bool:
    numbers = {call.number for call in calls}
    links: dict[int, set[int]] = {number: set() for number in numbers}
    for call in calls:
        for slot in call.slots:
            if slot.call in numbers:
                links[call.number].add(slot.call)
                links[slot.call].add(call.number)
    found, stack = set(), [calls[0].number]
    while stack:
        number = stack.pop()
        if number not in found:
            found.add(number)
            stack += links[number]
    return found == numbers


def _not_a_block(table: Table, places: Sequence[Place], what: str) -> UsageError:
    paths = [place.path for place in places]
    shown = ", ".join(paths[:5]) + (", ..." if len(paths) > 5 else "")
    return UsageError(
        explain(
            "`replace`: one layer takes the place of one block, and these are none.",
            where=shown,
            expected="calls of one model that are connected",
            received=what,
            fix="to replace each of them pass a function: `lambda old: NewLayer(...)`",
        )
    )


# --- wrap, append ---------------------------------------------------------------------


def wrap(table: Table, places: Sequence[Place], wrapper: Callable[[Any], Any]) -> Table:
    """Puts a wrapper around layers, which keep their weights."""
    refuse_inputs(table, places, "wrap", "wrap the layer behind it")
    layers = by_part(places)
    for place in layers:
        old = table[place.part].operation
        try:
            new = wrapper(old)
        except Exception as error:
            raise UsageError(
                explain(
                    f"`wrap`: the wrapper does not take this {type(old).__name__}.",
                    where=place.path,
                    expected="a layer that the wrapper can hold",
                    received=f"{old!r}: {trials.reason(error)}",
                    fix="choose other layers, or another wrapper",
                )
            ) from error
        new = as_new(new, old, verb="wrap", where=place.path)
        table = exchange(table, place, new, verb="wrap")
    return touched(table, [place.part for place in layers], verb="wrap")


def append(table: Table, layers: Sequence[Any], output: int | None) -> Table:
    """Puts layers one after the other behind an output of the model."""
    root = table.root
    slots = slots_in(table.scope.outputs)
    is_known = output is not None and -len(slots) <= output < len(slots)
    if not is_known and (output is not None or len(slots) > 1):
        raise UsageError(
            explain(
                "`append` must be told behind which output.",
                where=table[root].name,
                expected=f"`output=` from 0 to {len(slots) - 1}",
                received=f"output={output!r}",
                fix="pass the number of the output, for example `output=0`",
            )
        )
    position = (output or 0) % len(slots)
    for layer in layers:
        slot = slots_in(table.scope.outputs)[position]
        new = as_new(layer, None, verb="append", where=table[root].name)
        table, made = add_call(table, root, new, slot, verb="append")
        if len(made) == 1:
            flat = [*slots_in(table.scope.outputs)]
            flat[position] = made[0]
            outputs = keras.tree.pack_sequence_as(table.scope.outputs, flat)
        else:
            outputs = put(table.scope.outputs, {slot: made})
        scope = table.scope.having(outputs=outputs)
        table = table.having(root, scope=scope)
    return table


def unshare(table: Table, place: Place, index: int) -> tuple[Table, Place]:
    """Gives one call of a shared layer a layer of its own, and says so."""
    calls = _calls_up_to(table, place, index)
    if len(calls) == 1:
        return table, place
    assert place.scope is not None
    name = counted(table[place.part].name, names_in(table, place.scope))
    table, key = table.doubling(place.part)
    table = table.having(key, name=name)
    chosen = calls[index]
    new = dataclasses.replace(chosen, part=key)
    scope = table.scope_of(place.scope)
    changed = [new if c.number == chosen.number else c for c in scope.calls]
    table = table.having(place.scope, scope=scope.having(changed))
    table = table.saying(
        f"{place.path} is no longer shared by all its calls: call {index} has a layer "
        f"of its own, {name}."
    )
    return table, dataclasses.replace(place, part=key, call=chosen.number)


def at_call(table: Table, place: Place, index: int) -> tuple[Table, Place]:
    """Chooses one call of a layer, which goes on being shared, and says so."""
    calls = _calls_up_to(table, place, index)
    if len(calls) == 1:
        return table, place
    note = f"{place.path} was edited at call {index} only; its calls share one layer."
    chosen = dataclasses.replace(place, call=calls[index].number, only=True)
    return table.saying(note), chosen


def _calls_up_to(table: Table, place: Place, index: int) -> list[Call]:
    """Returns the calls of a layer, if there are so many that one has this number."""
    calls = [] if place.scope is None else calls_of(table, place)
    if not isinstance(index, int) or not -len(calls) <= index < len(calls):
        raise _no_such_call(place, index, len(calls))
    return calls


def _no_such_call(place: Place, index: int, count: int) -> UsageError:
    return UsageError(
        explain(
            f"The layer has no call {index}.",
            where=place.path,
            expected=f"`call=` from 0 to {count - 1}"
            if count
            else "no `call=`: what calls a layer inside another layer is Python code",
            received=f"call={index!r}",
            fix="look at the calls with `print(graph)`",
        )
    )


def rename(table: Table, names: dict[int, str]) -> Table:
    """Gives parts other names."""
    for key, name in names.items():
        table = table.having(key, name=name)
    for scope in scopes(table):
        seen: dict[str, int] = {}
        for call in table.scope_of(scope).calls:
            name = table[call.part].name
            if seen.setdefault(name, call.part) != call.part:
                raise name_clash(table, scope, name, "rename")
    return table
