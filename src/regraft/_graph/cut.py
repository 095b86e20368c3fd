"""The verbs that change where a model begins and ends, and cut models out of models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from .. import _keras
from .._errors import UsageError, UsageTypeError, did_you_mean, explain
from .._inputs import FixedInput
from . import infer, trials
from .calls import Call
from .inlining import End, find_all
from .slots import Slot, put, slots_in
from .splice import add_call, add_input, counted, lead, names_in
from .table import Part, Table


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
    table, outputs = find_all(table, struct, "outputs")
    _check_some(table, outputs, "output")
    scope = table.scope.having(outputs=outputs)
    return table.having(table.root, scope=scope.used)


def extract(table: Table, inputs: Any, outputs: Any) -> Table:
    """Makes a new model of what lies between tensors, at any depth."""
    # Both at once: what one of them is found in may be taken apart for the other.
    wanted = {"outputs": outputs, "inputs": inputs}
    wanted = {name: ends for name, ends in wanted.items() if ends is not None}
    table, found = find_all(table, wanted, "extract")
    ends, given = found.get("outputs", table.scope.outputs), found.get("inputs")
    _check_some(table, ends, "output")
    scope = table.scope.having(outputs=ends)
    table = table.having(table.root, scope=scope)
    if given is not None:
        table = _begin_at(table, given, "extract")
    else:
        needed = table.scope.needed(table.scope.outputs)
        left = [s for s in slots_in(table.scope.inputs) if s.call in needed]
        first: Any = left[0] if len(left) == 1 else left
        if len(left) != len(slots_in(table.scope.inputs)):
            scope = table.scope.having(inputs=first).used
            table = table.having(table.root, scope=scope)
    scope = table.scope.used
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
        table, moved[slot] = add_input(table, root, new)
    outputs = slots_in(table.scope.outputs)
    table = lead(table, root, moved, verb=verb) if moved else table
    for before, after in zip(outputs, slots_in(table.scope.outputs), strict=True):
        if before != after:
            raise _no_way(table, table.scope.by_number[after.call], "an input")
    inputs = put(struct, moved)
    chosen = {slot.call for slot in slots_in(inputs)}
    needed = table.scope.needed(table.scope.outputs)
    for call in table.scope.calls:
        is_input = isinstance(table[call.part].operation, _keras.InputLayer)
        if is_input and call.number in needed and call.number not in chosen:
            raise _no_way(table, call, "an output")
    scope = table.scope.having(inputs=inputs)
    return table.having(root, scope=scope.used)


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


# --- inputs ---------------------------------------------------------------------------


def change_inputs(table: Table, chosen: Sequence[Any], named: dict[str, Any]) -> Table:
    """Chooses other inputs of a model, or puts others in their places."""
    structure(chosen, named, "inputs", table[table.root].name)
    slots = slots_in(table.scope.inputs)
    if chosen and all(isinstance(x, End) for x in chosen):
        table, struct = find_all(
            table, chosen[0] if len(chosen) == 1 else list(chosen), "inputs"
        )
        return _begin_at(table, struct, "inputs")
    if len(chosen) == 1 and isinstance(chosen[0], dict):
        named, chosen = chosen[0], ()
    names = [table[table.scope.by_number[s.call].part].name for s in slots]
    keys = table.scope.inputs
    if isinstance(keys, dict) and all(isinstance(keys.get(x), Slot) for x in named):
        # A model that takes a dict is called with its keys, whatever the names are.
        named = {names[slots.index(keys[x])]: new for x, new in named.items()}
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
    for name in named:
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
    return _change_all(table, {slots[names.index(n)]: new for n, new in named.items()})


def _change_all(table: Table, given: dict[Slot, Any]) -> Table:
    """Puts others in the places of inputs, all at once: one may need another."""
    before = [table.scope.tensor(slot) for slot in slots_in(table.scope.outputs)]
    users: list[int] = []
    arrays: dict[Slot, Any] = {}
    for slot, new in given.items():
        tensor = _as_input(table, slot, new)
        if tensor is None:
            arrays[slot] = _keras.to_numpy(new)
        else:
            users += [call.number for call in table.scope.consumers(slot)]
            table = infer.with_input(table, table.root, slot, tensor)
    if len(arrays) < len(given):
        table = infer.refresh(table, table.root, users, verb="inputs", before=before)
    for slot, value in arrays.items():
        table = _fix_input(table, slot, value)
    return table


def _as_input(table: Table, slot: Slot, new: Any) -> Any:
    """Returns what is to be an input, or None for an array."""
    old = table.scope.tensor(slot)
    if isinstance(new, tuple | list) and all(isinstance(n, int | None) for n in new):
        shape = (old.shape[0], *new)
        new = trials.like_input(table.scope, slot, _keras.KerasTensor(shape, old.dtype))
    if isinstance(new, _keras.InputLayer):
        new = new.output
    if isinstance(new, _keras.KerasTensor) and _keras.input_layer_of(new) is not None:
        return new
    if keras.ops.is_tensor(new) or isinstance(new, np.ndarray | np.generic):
        return None
    raise UsageTypeError(
        explain(
            "This cannot take the place of an input.",
            where=f"{table[table.root].name}/{_name_of(table, slot)}",
            expected="a shape without the batch, what `keras.Input(...)` returns, an "
            "array, or the path of a tensor in the model",
            received=f"{new!r} (of type {type(new).__name__})",
            fix="pass for example `keras.Input((64, 64, 3))`",
        )
    )


def _name_of(table: Table, slot: Slot) -> str:
    return table[table.scope.by_number[slot.call].part].name


def _fix_input(table: Table, slot: Slot, value: Any) -> Table:
    """Makes an array a part of the model, in place of an input."""
    old, name = table.scope.tensor(slot), _name_of(table, slot)
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
    scope = table.scope.having(inputs=inputs, outputs=outputs)
    return table.having(table.root, scope=scope.used)
