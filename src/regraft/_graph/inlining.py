"""Finds tensors at any depth, where the outermost model has them.

A tensor inside a nested model is reached by *inlining*: the calls of the nested model
become calls of the model around it. Its layers stay the same parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from .. import _keras
from .._errors import UsageError, UsageTypeError, explain
from . import infer
from .calls import Call, in_order
from .slots import Slot, put, slots_in
from .splice import Place, counted, names_in
from .table import Table


@dataclasses.dataclass(frozen=True)
class End:
    """What a graph makes of a path, a `Ref` or a node: the place, and which output."""

    place: Place
    output: int


def map_ends(function: Callable[[Any], Any], struct: Any) -> Any:
    """Applies a function to what names tensors in a structure."""
    if isinstance(struct, dict):
        return {key: map_ends(function, value) for key, value in struct.items()}
    if isinstance(struct, list) or type(struct) is tuple:
        return type(struct)(map_ends(function, value) for value in struct)
    return function(struct)


def find_all(table: Table, struct: Any, verb: str) -> tuple[Table, Any]:
    """Returns the slots of tensors in the outermost model, where they are now."""
    found: dict[int, Slot] = {}
    ends: list[End] = []

    def collect(end: Any) -> Any:
        if not isinstance(end, End):
            raise UsageTypeError(
                explain(
                    f"`{verb}` does not know which tensor this is.",
                    where=table[table.root].name,
                    expected="a path, a `Ref` or a node of the graph",
                    received=f"{end!r} (of type {type(end).__name__})",
                    fix="pass the path of a layer, as `print(graph)` shows it",
                )
            )
        ends.append(end)
        return len(ends) - 1

    indices = map_ends(collect, struct)
    inlined = _Inlined({}, {})
    for i, end in enumerate(ends):
        table, found[i] = _find(table, end.place, end.output, inlined, verb)
    for i, slot in found.items():  # What it was found in may be gone by now.
        while slot in inlined.gone:
            slot = inlined.gone[slot]
        found[i] = slot
    return table, keras.tree.map_structure(lambda i: found[i], indices)


@dataclasses.dataclass
class _Inlined:
    """Nested models that were taken apart.

    Attributes:
        moved: By their ways, where each tensor inside is now.
        gone: For each tensor that they returned the one that is there instead.
    """

    moved: dict[tuple[str, ...], dict[Slot, Slot]]
    gone: dict[Slot, Slot]


def _find(
    table: Table,
    place: Place,
    output: int,
    inlined: _Inlined,
    verb: str,
) -> tuple[Table, Slot]:
    if place.call is None:
        raise UsageError(
            explain(
                f"`{verb}`: the tensors inside a layer are not known.",
                where=place.path,
                expected="a layer that a model calls",
                received="a layer that another layer holds, and calls in Python code",
                fix="choose the layer around it",
            )
        )
    *way, _ = place.path.split("/")
    slots: dict[Slot, Slot] = {}
    done: tuple[str, ...] = ()
    for name in way:
        done = (*done, name)
        if done not in inlined.moved:
            table, inlined.moved[done] = _inline(table, slots, done, inlined, verb)
        slots = inlined.moved[done]
    slot = Slot(place.call, output)
    return table, slots.get(slot, slot)


def _inline(
    table: Table,
    outer: dict[Slot, Slot],
    way: tuple[str, ...],
    inlined: _Inlined,
    verb: str,
) -> tuple[Table, dict[Slot, Slot]]:
    """Makes the calls of a nested model calls of the outermost one."""
    numbers = {slot.call for slot in outer.values()}
    calls = [
        call
        for call in table.scope.calls
        if table[call.part].name == way[-1] and (not outer or call.number in numbers)
    ]
    where = "/".join(way)
    if len(calls) != 1:
        raise UsageError(
            explain(
                f"`{verb}`: it is not clear which call of the nested model is meant.",
                where=where,
                expected="a nested model that is called once",
                received=f"{len(calls)} calls",
                fix="give one call a model of its own first: `replace(path, "
                "regraft.clone, call=0)`",
            )
        )
    [call] = calls
    inner = table.scope_of(call.part)
    _check_inlinable(table, call, where, verb)
    moved = dict(zip(slots_in(inner.inputs), call.slots, strict=True))
    taken = names_in(table, table.root)
    new_calls = []
    for each in inner.calls:
        if Slot(each.number) in moved:
            continue
        name = table[each.part].name
        if taken.get(name, each.part) != each.part:
            name = counted(f"{way[-1]}_{name}", taken)
            table = table.having(each.part, name=name)
        taken[name] = each.part
        made = Call(each.part, put(each.arguments, moved), each.outputs)
        moved.update(zip(each.results, made.results, strict=True))
        new_calls.append(made)
    results = [moved[slot] for slot in slots_in(inner.outputs)]
    old = dict(zip(call.results, results, strict=False))
    inlined.gone.update(old)
    others = [c.fed(old) for c in table.scope.calls if c.number != call.number]
    ordered = in_order([*others, *new_calls])
    assert ordered is not None
    outputs = put(table.scope.outputs, old)
    scope = table.scope.having(ordered, outputs=outputs)
    table = table.having(table.root, scope=scope)
    table = table.saying(f"{where} was taken apart: the model calls its layers now.")
    numbers_again = [made.number for made in new_calls]
    return infer.refresh(table, table.root, numbers_again, verb=verb), moved


def _check_inlinable(table: Table, call: Call, where: str, verb: str) -> None:
    model = table[call.part].operation
    inner = table.scope_of(call.part)
    args, kwargs = call.arguments
    plain = len(args) == 1 and not kwargs
    tensors = [table.scope.tensor(slot) for slot in call.slots]
    wanted = [inner.tensor(slot) for slot in slots_in(inner.inputs)]
    same = len(tensors) == len(wanted) and all(
        a.dtype == b.dtype and len(a.shape) == len(b.shape)
        for a, b in zip(tensors, wanted, strict=True)
    )
    own_call = model is not None and not _keras.runs_its_graph(model)
    if not plain or not same or own_call:
        raise UsageError(
            explain(
                f"`{verb}`: the nested model cannot be taken apart.",
                where=where,
                expected="a model that does nothing but its graph, called with tensors "
                "of the kinds of its inputs and nothing else",
                received="a `call()` of its own"
                if own_call
                else f"arguments {kwargs}"
                if not plain
                else "tensors of other kinds",
                fix="add the tensor to the outputs of the nested model by hand",
            )
        )
