"""Tries operations on copies, before anything is built.

A copy works on the variables of the original, or has forgotten them and builds itself
again: nothing of the model is touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras

from .. import _keras
from .._errors import UsageError, explain
from .._refit import holds, weights
from .assemble import Assembly
from .calls import Call, Scope
from .slots import Slot, put
from .table import Table, held_by, read

# What an operation is called with, and what by keyword.
Arguments = tuple[Any, dict[str, Any]]


def like_input(
    scope: Scope, slot: Slot, tensor: Any, *, name: str | None = None
) -> Any:
    """Returns an input with the shape of a tensor, and else like one of a scope."""
    old = scope.tensor(slot)
    layer = _keras.input_layer_of(old)
    with _keras.quiet_globals():
        return keras.Input(
            batch_shape=tensor.shape,
            dtype=old.dtype,
            sparse=old.sparse,
            ragged=getattr(old, "ragged", None),
            optional=bool(getattr(layer, "optional", False)),
            name=name or input_name(old),
        )


def input_name(tensor: Any) -> str:
    """Returns the name of the input that a tensor is."""
    layer = _keras.input_layer_of(tensor)
    return str(tensor.name if layer is None else layer.name)


def attempt(
    table: Table, scope: int, call: Call, arguments: Arguments, verb: str
) -> list[Any]:
    """Returns what an operation makes of symbolic tensors.

    Args:
        table: The table.
        scope: The model that calls it.
        call: The call.
        arguments: What it is called with, and by keyword.
        verb: What was done, for messages.
    """
    key = call.part
    trial = _try(table, key, arguments)
    edited = list(_edited_inside(table, key))
    is_refitted = _has_other_weights(trial.operation, table[key].operation)
    if edited or is_refitted or _may_be_mistaken(table, call, arguments):
        wrong = _difference(table, key, arguments, trial)
        if wrong is not None and _was_right(table, call, arguments):
            where = f"{table[scope].name}/{table[key].name}"
            raise _cannot_run(where, edited, wrong, verb)
    return trial.outputs


def _has_other_weights(made: Any, layer: Any) -> bool:
    """Tells whether a layer that is called elsewhere too has to change for a call."""
    is_built = isinstance(layer, _keras.Layer) and layer.built
    return is_built and bool(weights(made) - weights(layer))


def _may_be_mistaken(table: Table, call: Call, arguments: Arguments) -> bool:
    """Tells whether what is given other shapes may not know what it returns.

    Layers that say it themselves, and are not Keras's own, need not be right. Keras's
    own know what becomes of shapes, but not that they cannot take others: of another
    kind, or such that do not go with what else they are given.
    """
    operation = table[call.part].operation
    before = arguments_before(table, call)
    if before is None or _specs_in(before) == _specs_in(arguments):
        return False
    is_layer = isinstance(operation, _keras.Layer)
    if is_layer and not _keras.says_spec(operation):
        return False
    if _kinds_in(before) != _kinds_in(arguments) or _is_given_several(arguments):
        return True
    return is_layer and not _keras.is_keras_code(operation)


def _is_given_several(arguments: Arguments) -> bool:
    args, kwargs = arguments
    given = [_keras.leaves(x) for x in (*args, *kwargs.values())]
    return sum(any(hasattr(x, "shape") for x in leaves) for leaves in given) > 1


def arguments_before(table: Table, call: Call) -> Arguments | None:
    """Returns what an operation was called with in the model that was read."""
    node = call.node
    if node is None or node.operation is not table[call.part].operation:
        return None

    def alone(x: Any) -> Any:
        return _keras.detached(x) if isinstance(x, _keras.KerasTensor) else x

    args, kwargs = _keras.map_leaves(alone, _keras.call_arguments(node))
    return args, kwargs


def _specs_in(arguments: Arguments) -> list[tuple[Any, str]]:
    return [(x.shape, x.dtype) for x in _keras.tensors_in(arguments)]


def _kinds_in(arguments: Arguments) -> list[tuple[int, bool]]:
    """Returns of tensors how many axes they have, and whether they hold fractions."""
    return [
        (len(shape), _keras.is_float(dtype)) for shape, dtype in _specs_in(arguments)
    ]


def _edited_inside(table: Table, key: int) -> Iterator[str]:
    """Yields the paths, below a layer, of what others made of the layers inside it."""
    stack, seen = [(key, "")], set()
    while stack:
        holder, path = stack.pop()
        if holder in seen:
            continue
        seen.add(holder)
        part = table[holder]
        for old, inside in zip(held_by(part.operation), part.held, strict=True):
            there = f"{path}/{table[inside].name}"
            if table[inside].operation is not old or table[inside].changes:
                yield there
            elif table[inside].scope is None:
                stack.append((inside, there))
            elif inside in table.changed:
                yield there


def _was_right(table: Table, call: Call, arguments: Arguments) -> bool:
    """Tells whether a layer did what it said before it was edited.

    If not, it tells nothing that it does something else now.
    """
    before = read(table[call.part].operation)
    given = arguments_before(table, call) or arguments
    try:
        trial = _try(before, before.root, given)
    except Exception:  # It was edited to take what it is given.
        return True
    return _difference(before, before.root, given, trial) is None


def _difference(
    table: Table, key: int, arguments: Arguments, trial: _Trial
) -> str | None:
    """Returns what a layer's code does that is not what the layer says it does."""
    try:
        is_rebuilt = trial.is_rebuilt
        traced = _call(table, key, arguments, is_rebuilt=is_rebuilt, is_traced=True)
    except Exception as error:  # Whatever a layer raises.
        return reason(error)
    said, found = [[x.shape for x in t.outputs] for t in (trial, traced)]
    is_alike = len(said) == len(found) and all(map(shapes_match, said, found))
    return None if is_alike else f"it returns {found}, and says that it returns {said}"


def _cannot_run(where: str, edited: list[str], wrong: str, verb: str) -> UsageError:
    return UsageError(
        explain(
            f"`{verb}`: the code of {where!r} does not work any more.",
            where=", ".join(where + path for path in edited or [""]),
            expected="layers that its code can use in the places of the old ones"
            if edited
            else "an input that its code can use",
            received=wrong,
            fix="put a layer there that returns what the old one returned, or replace "
            "the whole layer",
        )
    )


@dataclass(frozen=True)
class _Trial:
    """What came of a call.

    Attributes:
        operation: The copy that was called.
        outputs: What it returned.
        is_rebuilt: Whether it had forgotten its variables, and built itself again.
    """

    operation: Any
    outputs: list[Any]
    is_rebuilt: bool


def _try(table: Table, key: int, arguments: Arguments) -> _Trial:
    """Calls a copy of an operation, which builds itself for what it is given."""
    operation = table[key].operation
    is_layer = isinstance(operation, _keras.Layer) and table[key].scope is None
    if not is_layer or not operation.built:
        return _call(table, key, arguments, is_rebuilt=False)
    try:
        return _call(table, key, arguments, is_rebuilt=True)
    except Exception:  # It cannot be built twice: as it is, then.
        return _call(table, key, arguments, is_rebuilt=False)


def _call(
    table: Table,
    key: int,
    arguments: Arguments,
    *,
    is_rebuilt: bool,
    is_traced: bool = False,
) -> _Trial:
    """Calls a copy of an operation.

    Args:
        table: The table.
        key: The operation.
        arguments: What it is called with, and by keyword.
        is_rebuilt: Whether it forgets its variables first.
        is_traced: Whether the code of a layer is run, whatever it says of itself.
    """
    operation = _copy(table, key)
    if is_traced:
        _keras.run_when_called(operation)
    inside = _keras.all_layers(operation) if is_rebuilt else []
    for layer in inside:
        _keras.forget_variables(layer)
    args, kwargs = arguments
    outputs = keras.tree.flatten(operation(*args, **kwargs))
    if is_rebuilt and not holds(operation, inside) and any(_edited_inside(table, key)):
        # `build()` made other layers, without the edit.
        return _call(table, key, arguments, is_rebuilt=False, is_traced=is_traced)
    return _Trial(operation, outputs, is_rebuilt)


def _copy(table: Table, key: int) -> Any:
    """Returns an operation as it will be, on the variables of the original."""

    def make_model(model: int) -> Any:
        """Calls what a model inside a layer calls now."""
        scope = table.scope_of(model)
        tensors: dict[Slot, Any] = {}
        for call in scope.calls:
            if isinstance(table[call.part].operation, _keras.InputLayer):
                slot = Slot(call.number)
                made = [like_input(scope, slot, scope.tensor(slot))]
            else:
                given = put(call.arguments, tensors)
                made = _try(table, call.part, given).outputs
            tensors.update(zip(call.results, made, strict=False))
        inputs, outputs = put(scope.inputs, tensors), put(scope.outputs, tensors)
        return _keras.functional(inputs, outputs, table[model].name)

    assembly = Assembly(table, is_trial=True, make_model=make_model)
    assembly.copy(table.below(key), {})
    return assembly.operation(key)


def cannot_call(
    table: Table, scope: int, call: Call, given: list[Any], error: Exception, verb: str
) -> UsageError:
    """Returns an error that says that a call of a model failed, and why."""
    part = table[call.part]
    shapes = ", ".join(str(x.shape) for x in given) or "nothing"
    calls = [each for each in table.scope_of(scope).calls if each.part == call.part]
    others = "; all its calls share one layer: give them alike, or use `call=`"
    return UsageError(
        explain(
            f"`{verb}`: {type(part.operation).__name__} {part.name!r} cannot be called "
            "there.",
            where=f"{table[scope].name}/{part.name}",
            expected="an operation that takes what it is given there",
            received=f"{shapes}: {reason(error)}",
            fix="insert a layer that gives it what it wants, or choose another place"
            + (others if len(calls) > 1 else ""),
        )
    )


def two_shapes(table: Table, scope: int, call: Call, shapes: list[Any]) -> UsageError:
    """Returns an error that says that a shared layer would need two sets of weights.

    Args:
        table: The table.
        scope: A model that calls the layer as it is.
        call: The call.
        shapes: The shapes that another call gives it, for which it must change.
    """
    given = [table.scope_of(scope).tensor(slot).shape for slot in call.slots]
    name = table[call.part].name
    return UsageError(
        explain(
            f"`build`: {name!r} is shared, and would have to take two shapes.",
            where=f"{table[scope].name}/{name}",
            expected=f"at all its calls {', '.join(map(str, given))}",
            received=f"{', '.join(map(str, shapes))} at another call",
            fix="edit all its calls alike, or give one a layer of its own: "
            f"`replace({name!r}, regraft.clone, call=...)`",
        )
    )


def reason(error: Exception) -> str:
    """Returns the line of Keras's message that says what is wrong."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Where one error led to another, the first is what somebody can mend.
    ends = [i for i, x in enumerate(lines) if x.endswith("Error encountered:")]
    lines = lines[ends[-1] + 1 :] if ends else lines
    telling = [x for x in lines if not x.startswith("Exception encountered")]
    return (telling or lines or [type(error).__name__])[0][:300]


def shapes_match(one: Any, other: Any) -> bool:
    """Tells whether two shapes may be those of one tensor."""
    if one is None or other is None or len(one) != len(other):
        return False
    sizes = zip(one, other, strict=True)
    return all(m is None or n is None or m == n for m, n in sizes)
