"""The verbs that put layers between others, or take them out: insert and remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _keras
from .._errors import UsageError, explain
from .edit import exchange, touched
from .places import by_part, calls_of, held, refuse_inputs
from .slots import Slot
from .splice import Place, add_call, add_call_of, another, as_new, is_operation, lead
from .table import Table


def insert(
    table: Table,
    places: Sequence[Place],
    new: Any,
    port: int | None,
    *,
    is_before: bool,
) -> Table:
    """Puts a layer behind others, or in front of them.

    Behind a layer it stands between it and all that use it; in front, on one of the
    tensors that the layer is given.
    """
    if is_before:
        refuse_inputs(table, places, "insert", "insert it with `after=` the input")
    inside, called = _apart(places)
    made = _made_for(table, [*inside, *called], new)
    for place in inside:
        layer = made[place.part]
        table = _around_held(table, place, layer, is_before=is_before)
    # Only now: what stands inside one layer may fit together and not alone.
    table = touched(table, [place.part for place in inside], verb="insert")
    for place in called:
        assert place.scope is not None
        part: int | None = None
        for call in calls_of(table, place):
            if is_before:
                choices = list(dict.fromkeys(call.slots))
                slot = choices[_port(port, len(choices), place, "input")]
            else:
                number = _port(port, len(call.outputs), place, "output")
                slot = call.results[number]
            table, part, [out, *_] = _once(
                table, place.scope, made[place.part], part, slot
            )
            table = lead(
                table,
                place.scope,
                {slot: out},
                verb="insert",
                apart_from=[out.call],
                only=[call.number] if is_before else None,
            )
    return table


def _apart(places: Sequence[Place]) -> tuple[list[Place], list[Place]]:
    """Returns the places inside layers, and those that are called by models."""
    layers = by_part(places)
    inside = [place for place in layers if place.scope is None]
    return inside, [place for place in layers if place.scope is not None]


def _made_for(table: Table, places: list[Place], new: Any) -> dict[int, Any]:
    """Returns what is inserted next to each part: other layers after the first."""
    found: dict[int, Any] = {}
    for place in places:
        old = table[place.part].operation
        made = as_new(new, old, verb="insert", where=place.path)
        is_used = bool(found) and made is new and is_operation(made)
        found[place.part] = another(made) if is_used else made
    return found


def _once(
    table: Table, scope: int, new: Any, part: int | None, slot: Slot
) -> tuple[Table, int | None, list[Slot]]:
    """Calls a new layer, which is shared by all calls of the layer next to it."""
    if part is not None:
        table, made = add_call_of(table, scope, part, ((slot,), {}), verb="insert")
        return table, part, made
    table, made = add_call(table, scope, new, slot, verb="insert")
    called = table.scope_of(scope).by_number[made[0].call].part
    return table, called if is_operation(new) else None, made


def _port(port: int | None, count: int, place: Place, what: str) -> int:
    if port is None and count == 1:
        return 0
    if isinstance(port, int) and -count <= port < count:
        return port % count
    raise UsageError(
        explain(
            f"`insert` must be told at which {what} of the layer.",
            where=place.path,
            expected=f"`port=` from 0 to {count - 1}",
            received=f"port={port!r}, and {count} {what}s",
            fix=f"pass the number of the {what}, for example `port=0`",
        )
    )


def _around_held(table: Table, place: Place, new: Any, *, is_before: bool) -> Table:
    """Inside a layer nothing is known of the calls: two layers act as one there."""
    if not isinstance(new, _keras.Layer):
        raise held(place, "insert", "an operation")
    old = table[place.part].operation
    layers = [new, old] if is_before else [old, new]
    with _keras.quiet_globals():
        both = _keras.chain_of(layers, name=table[place.part].name)
    return exchange(table, place, both, verb="insert")


# --- remove ---------------------------------------------------------------------------


def remove(table: Table, places: Sequence[Place], keep: Any) -> Table:
    """Takes layers out; what used them uses what they were given.

    A layer with several inputs can go when only one is left, because the others
    came from layers that go as well.
    """
    refuse_inputs(table, places, "remove", "choose the inputs with `inputs(...)`")
    inside, called = _apart(places)
    for place in inside:
        table = _replace_held_by_nothing(table, place)
    # Only now: what is left inside one layer may fit together and not in between.
    table = touched(table, [place.part for place in inside], verb="remove")
    if keep is not None:
        _check_keep(table, called, keep)
    left = called[::-1]  # The last first: what stays must not be tried with what goes.
    while left:
        later = []
        for place in left:
            bridged = _bridge(table, place, keep)
            if bridged is None:
                later.append(place)
            else:
                table = bridged
        if len(later) == len(left):
            raise _which_input(table, later[0], keep)
        left = later
    return table


def _check_keep(table: Table, places: Sequence[Place], keep: Any) -> None:
    """Refuses an input that none of the layers has, where there is no choice."""
    given = [(p, {*c.slots}) for p in places for c in calls_of(table, p)]
    if all(len(slots) == 1 for _, slots in given):
        for place, slots in given:
            _kept(table, place, list(slots), keep)


def _bridge(table: Table, place: Place, keep: Any) -> Table | None:
    assert place.scope is not None
    moved: dict[Slot, Slot] = {}
    for call in calls_of(table, place):
        slots = list(dict.fromkeys(call.slots))
        if len(slots) > 1 and keep is not None:
            slots = [slots[_kept(table, place, slots, keep)]]
        if len(slots) > 1:
            return None
        moved.update(dict.fromkeys(call.results, slots[0]))
    while any(slot in moved for slot in moved.values()):  # Calls of one layer in a row.
        moved = {a: moved.get(b, b) for a, b in moved.items()}
    return lead(table, place.scope, moved, verb="remove")


def _kept(table: Table, place: Place, slots: list[Slot], keep: Any) -> int:
    assert place.scope is not None
    is_number = isinstance(keep, int) and not isinstance(keep, bool)
    if is_number and -len(slots) <= keep < len(slots):
        return keep
    names = [_name_of(table, place.scope, slot) for slot in slots]
    is_named = isinstance(keep, str) or hasattr(keep, "output")
    wanted = str(keep if is_named else getattr(keep, "path", "")).rpartition("/")[2]
    if wanted not in names:  # The name alone will do, if only one is called so.
        names = [name.partition("#")[0].partition("[")[0] for name in names]
    if names.count(wanted) == 1:
        return names.index(wanted)
    raise _which_input(table, place, keep)


def _name_of(table: Table, key: int, slot: Slot) -> str:
    """Returns a tensor's name within a model, as a `Ref` is printed."""
    scope = table.scope_of(key)
    part = scope.by_number[slot.call].part
    numbers = [call.number for call in scope.calls if call.part == part]
    index = numbers.index(slot.call)
    call, output = f"#{index}" if index else "", f"[{slot.output}]"
    return f"{table[part].name}{call}{output if slot.output else ''}"


def _which_input(table: Table, place: Place, keep: Any) -> UsageError:
    assert place.scope is not None
    slots = [slot for call in calls_of(table, place) for slot in call.slots]
    names = dict.fromkeys(_name_of(table, place.scope, slot) for slot in slots)
    return UsageError(
        explain(
            "`remove`: the layer has several inputs, and one must take its place."
            if len(names) > 1
            else "`remove`: the layer has no such input.",
            where=place.path,
            expected="`keep=` with the number or the path of one of its inputs: "
            + ", ".join(names),
            received=f"keep={keep!r}",
            fix=f"pass for example `keep={next(iter(names))!r}`",
        )
    )


def _replace_held_by_nothing(table: Table, place: Place) -> Table:
    with _keras.quiet_globals():
        nothing = _keras.identity(name=table[place.part].name)
    return exchange(table, place, nothing, verb="remove")
