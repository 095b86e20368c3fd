"""The verbs that change where a model begins and ends, and cut models out of models.

A tensor inside a nested model is reached by *inlining*: the calls of the nested model
become calls of the model around it. Its layers stay the same parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from .. import _keras
from .._errors import UsageError, UsageTypeError, did_you_mean, explain
from .._inputs import FixedInput
from . import infer
from .slots import Slot, put, slots_in
from .splice import Place, add_call, counted, lead, names_in
from .table import Call, Part, Scope, Table, in_order

# What a graph makes of a path, a `Ref` or a node: the place, and which output.
End = tuple[Place, int]


def map_ends(function: Callable[[Any], Any], struct: Any) -> Any:
    """Applies a function to what names tensors in a structure."""
    if isinstance(struct, dict):
        return {key: map_ends(function, value) for key, value in struct.items()}
    if isinstance(struct, list) or type(struct) is tuple:
        return type(struct)(map_ends(function, value) for value in struct)
    return function(struct)


def structure(
    chosen: Sequence[Any], named: dict[str, Any], verb: str, name: str
) -> Any:
    """Returns the structure that the arguments of `inputs` or `outputs` make."""
    if (chosen and named) or not (chosen or named):
        raise UsageError(
            explain(
                f"`{verb}` takes tensors by position or by name.",
                where=name,
                expected="one of both",
                received="both" if chosen else "nothing",
                fix=f"call for example `graph.{verb}('pool')`",
            )
        )
    if named:
        return dict(named)
    return chosen[0] if len(chosen) == 1 else list(chosen)


# --- outputs --------------------------------------------------------------------------


def choose_outputs(table: Table, struct: Any) -> Table:
    """Makes tensors of a model, at any depth, its outputs."""
    table, outputs = _find_all(table, struct, "outputs")
    _check_some(table, outputs, "output")
    scope = table.scope.having(table.scope.calls, outputs=outputs)
    return table.having(table.root, scope=scope.used())


def extract(table: Table, inputs: Any, outputs: Any) -> Table:
    """Makes a new model of what lies between tensors, at any depth."""
    # Both at once: what one of them is found in may be taken apart for the other.
    wanted = {"outputs": outputs, "inputs": inputs}
    wanted = {name: ends for name, ends in wanted.items() if ends is not None}
    table, found = _find_all(table, wanted, "extract")
    ends, given = found.get("outputs", table.scope.outputs), found.get("inputs")
    _check_some(table, ends, "output")
    scope = table.scope.having(table.scope.calls, outputs=ends)
    table = table.having(table.root, scope=scope)
    if given is not None:
        table = _begin_at(table, given, "extract")
    else:
        needed = _needed(table.scope)
        left = [s for s in slots_in(table.scope.inputs) if s.call in needed]
        first: Any = left[0] if len(left) == 1 else left
        if len(left) != len(slots_in(table.scope.inputs)):
            scope = table.scope.having(table.scope.calls, inputs=first).used()
            table = table.having(table.root, scope=scope)
    scope = table.scope.used()
    part = Part(None, table[table.root].name, scope=scope, is_new=True)
    return dataclasses.replace(table, parts={**table.parts, table.root: part})


def _check_some(table: Table, struct: Any, what: str) -> None:
    last = table[table.scope.calls[-1].part].name
    if not slots_in(struct):
        raise UsageError(
            explain(
                f"A model needs an {what}.",
                where=table[table.root].name,
                expected=f"at least one {what}",
                received="none",
                fix=f"name a layer, for example {last!r}",
            )
        )


def _needed(scope: Scope) -> set[int]:
    found = {slot.call for slot in slots_in(scope.outputs)}
    for call in reversed(scope.calls):
        if call.number in found:
            found.update(slot.call for slot in call.slots)
    return found


def _begin_at(table: Table, struct: Any, verb: str) -> Table:
    """Makes tensors of a model its inputs."""
    _check_some(table, struct, "input")
    root = table.root
    moved: dict[Slot, Slot] = {}
    for slot in slots_in(struct):
        call = table.scope.by_number[slot.call]
        if isinstance(table[call.part].operation, _keras.InputLayer):
            continue
        name = counted(f"{table[call.part].name}_input", names_in(table, root))
        tensor = table.scope.tensor(slot)
        with _keras.quiet_globals():
            new = keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=name)
        table, moved[slot] = _add_input(table, new)
    outputs = slots_in(table.scope.outputs)
    table = lead(table, root, moved, verb=verb) if moved else table
    for before, after in zip(outputs, slots_in(table.scope.outputs), strict=True):
        if before != after:
            raise _no_way(table, table.scope.by_number[after.call], "an input")
    inputs = put(struct, moved)
    chosen = {slot.call for slot in slots_in(inputs)}
    needed = _needed(table.scope)
    for call in table.scope.calls:
        is_input = isinstance(table[call.part].operation, _keras.InputLayer)
        if is_input and call.number in needed and call.number not in chosen:
            raise _no_way(table, call, "an output")
    scope = table.scope.having(table.scope.calls, inputs=inputs)
    return table.having(root, scope=scope.used())


def _no_way(table: Table, call: Call, what: str) -> UsageError:
    name = table[call.part].name
    return UsageError(
        explain(
            "The model cannot be cut there.",
            where=f"{table[table.root].name}/{name}",
            expected="inputs from which all outputs can be computed, and outputs that "
            "are no inputs",
            received=f"{name!r} is needed, and is no input"
            if what == "an output"
            else f"{name!r} is an output and an input",
            fix=f"choose {name!r} as an input too, or other outputs",
        )
    )


def _add_input(table: Table, tensor: Any) -> tuple[Table, Slot]:
    node = _keras.producer(tensor)
    table, part = table.adding(node.operation)
    arguments: Any = ((), {})
    call = Call(part, arguments, (tensor,), node=node, read=arguments)
    scope = table.scope.having([call, *table.scope.calls])
    return table.having(table.root, scope=scope), Slot(call.number)


# --- inputs ---------------------------------------------------------------------------


def change_inputs(table: Table, chosen: Sequence[Any], named: dict[str, Any]) -> Table:
    """Chooses other inputs of a model, or puts others in their places."""
    structure(chosen, named, "inputs", table[table.root].name)
    slots = slots_in(table.scope.inputs)
    if chosen and all(_is_end(x) for x in chosen):
        table, struct = _find_all(
            table, chosen[0] if len(chosen) == 1 else list(chosen), "inputs"
        )
        return _begin_at(table, struct, "inputs")
    if len(chosen) == 1 and isinstance(chosen[0], dict):
        named, chosen = chosen[0], ()
    names = [table[table.scope.by_number[s.call].part].name for s in slots]
    if chosen:
        if len(chosen) != len(slots):
            raise UsageError(
                explain(
                    "`inputs` must be given one thing for each input.",
                    where=table[table.root].name,
                    expected=f"{len(slots)}: {', '.join(names)}",
                    received=f"{len(chosen)}",
                    fix="pass None for an input that stays, or name those that change",
                )
            )
        named = {n: x for n, x in zip(names, chosen, strict=True) if x is not None}
    for name, new in named.items():
        if name not in names:
            raise UsageError(
                explain(
                    f"The model has no input {name!r}.",
                    where=table[table.root].name,
                    expected=", ".join(names),
                    received=repr(name),
                    fix=f"name one of these.{did_you_mean(name, names)}",
                )
            )
        table = _change_input(table, slots[names.index(name)], new, name)
    return table


def _is_end(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], Place)


def _change_input(table: Table, slot: Slot, new: Any, name: str) -> Table:
    old = table.scope.tensor(slot)
    if isinstance(new, tuple | list) and all(isinstance(n, int | None) for n in new):
        shape = (old.shape[0], *new)
        new = infer.like_input(table.scope, slot, _keras.KerasTensor(shape, old.dtype))
    if isinstance(new, _keras.InputLayer):
        new = new.output
    if isinstance(new, _keras.KerasTensor) and _keras.input_layer_of(new) is not None:
        users = [c.number for c in table.scope.consumers(slot)]
        before = [table.scope.tensor(s) for s in slots_in(table.scope.outputs)]
        table = infer.with_input(table, table.root, slot, new)
        return infer.refresh(table, table.root, users, verb="inputs", before=before)
    if keras.ops.is_tensor(new) or isinstance(new, np.ndarray | np.generic):
        return _fix_input(table, slot, _keras.to_numpy(new), name)
    raise UsageTypeError(
        explain(
            "This cannot take the place of an input.",
            where=f"{table[table.root].name}/{name}",
            expected="a shape without the batch, what `keras.Input(...)` returns, an "
            "array, or the path of a tensor in the model",
            received=f"{new!r} (of type {type(new).__name__})",
            fix="pass for example `keras.Input((64, 64, 3))`",
        )
    )


def _fix_input(table: Table, slot: Slot, value: Any, name: str) -> Table:
    """Makes an array a part of the model, in place of an input."""
    old = table.scope.tensor(slot)
    fits = len(value.shape) == len(old.shape) and all(
        n is None or m == n for m, n in zip(value.shape, old.shape, strict=True)
    )
    if not fits:
        raise UsageError(
            explain(
                "The array does not fit the input whose place it is to take.",
                where=f"{table[table.root].name}/{name}",
                expected=f"shape {tuple(old.shape)}, the batch included",
                received=f"shape {value.shape}",
                fix="pass an array of that shape, or change the input's shape first",
            )
        )
    others = [s for s in slots_in(table.scope.inputs) if s != slot]
    with _keras.quiet_globals():
        fixed = FixedInput(value, old.dtype, name=f"{name}_value")
    carrier = others[0] if others else slot
    table, [made] = add_call(table, table.root, fixed, carrier, verb="inputs")
    users = [c.number for c in table.scope.consumers(slot) if c.number != made.call]
    table = lead(table, table.root, {slot: made}, verb="inputs", only=users)
    outputs = put(table.scope.outputs, {slot: made})
    inputs = table.scope.inputs
    if others:
        inputs = others[0] if len(others) == 1 else others
    scope = table.scope.having(table.scope.calls, inputs=inputs, outputs=outputs)
    return table.having(table.root, scope=scope.used())


# --- inlining -------------------------------------------------------------------------


def _find_all(table: Table, struct: Any, verb: str) -> tuple[Table, Any]:
    """Returns the slots of tensors in the outermost model, where they are now."""
    found: dict[int, Slot] = {}
    ends: list[End] = []

    def collect(end: Any) -> Any:
        if not _is_end(end):
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

    indices = _map_end_leaves(collect, struct)
    inlined = _Inlined({}, {})
    for i, (place, output) in enumerate(ends):
        table, found[i] = _find(table, place, output, inlined, verb)
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


def _map_end_leaves(function: Callable[[Any], Any], struct: Any) -> Any:
    if _is_end(struct):
        return function(struct)
    if isinstance(struct, dict):
        return {k: _map_end_leaves(function, v) for k, v in struct.items()}
    if isinstance(struct, list | tuple):
        return type(struct)(_map_end_leaves(function, v) for v in struct)
    return function(struct)


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
        for i in range(len(each.outputs)):
            moved[Slot(each.number, i)] = Slot(made.number, i)
        new_calls.append(made)
    results = [moved[slot] for slot in slots_in(inner.outputs)]
    old = {Slot(call.number, i): slot for i, slot in enumerate(results)}
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
