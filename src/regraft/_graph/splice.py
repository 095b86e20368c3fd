"""Adds calls to a scope, and leads tensors elsewhere: what all edits are made of."""

from __future__ import annotations

import collections
import dataclasses
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import keras

from .. import _keras
from .._errors import UsageError, UsageTypeError, explain
from .._identity import address
from .._walk import Walk
from . import infer, trials
from .calls import Call, in_order
from .slots import Slot, put, slots_in
from .table import Table


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a node stands in a table.

    Attributes:
        part: The key of its part.
        path: Its path, for messages.
        scope: The key of the model that calls it; None for a layer held by another.
        call: The number of the call.
        index: Which of the layer's calls it is.
        holder: The key of the layer that holds it.
        only: Whether this call alone is meant, and not all calls of the layer.
    """

    part: int
    path: str
    scope: int | None = None
    call: int | None = None
    index: int = 0
    holder: int | None = None
    only: bool = False


def is_operation(new: Any) -> bool:
    """Tells whether something is a layer, a model or an operation of the graph."""
    return isinstance(new, _keras.Operation)


def is_tensor_function(new: Any) -> bool:
    """Tells whether something is a function of tensors: one of Keras's own."""
    is_keras = str(getattr(new, "__module__", "")).split(".")[0] == "keras"
    return is_keras and callable(new) and not isinstance(new, type | _keras.Operation)


def as_new(new: Any, old: Any, *, verb: str, where: str) -> Any:
    """Returns the operation, or the function of tensors, that an edit asks for.

    Args:
        new: What the caller passed: that, or a function of the old layer.
        old: The layer that is replaced, or next to which something is put.
        verb: What is being done, for messages.
        where: The path of `old`, for messages.
    """
    if is_operation(new) or is_tensor_function(new):
        return new
    found = new
    if callable(new) and not isinstance(new, type):
        found = new(old)
    if is_operation(found) or is_tensor_function(found):
        return found
    raise UsageTypeError(
        explain(
            f"`{verb}` needs a layer, a model or an operation.",
            where=where,
            expected="a layer, a model, one of `keras.ops`, or a function that gets "
            "the old layer and returns one of these",
            received=f"{found!r} (of type {type(found).__name__})",
            fix="pass for example `keras.layers.Dropout(0.1)`, an instance",
        )
    )


def another(operation: Any) -> Any:
    """Returns an exact copy of what is to be used in one more place."""
    return Walk(operation).run()


# --- names --------------------------------------------------------------------------


def names_in(table: Table, key: int) -> dict[str, int]:
    """Returns the names that are taken in a model, with the keys of their parts."""
    return {table[call.part].name: call.part for call in table.scope_of(key).calls}


def free_name(table: Table, key: int, operation: Any, *, verb: str) -> str:
    """Returns the name that an operation gets in a model.

    A name that Keras made up is counted on; one that somebody chose must be free.
    """
    name = _free(names_in(table, key), operation)
    if name is None:
        raise name_clash(table, key, operation.name, verb)
    return name


def _free(taken: Collection[str], operation: Any) -> str | None:
    name = str(operation.name)
    if name not in taken:
        return name
    base = _keras.snake_case(type(operation).__name__)
    if not re.fullmatch(rf"{re.escape(base)}(_\d+)?", name):
        return None
    return counted(name, taken)


def counted(name: str, taken: Collection[str]) -> str:
    """Returns the name, with a number if it is taken."""
    base, count = re.sub(r"_\d+$", "", name), 0
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    return name


def name_clash(table: Table, key: int, name: str, verb: str) -> UsageError:
    """Returns the error for two layers with one name."""
    return UsageError(
        explain(
            f"`{verb}` would give two layers of the model the same name.",
            where=f"{table[key].name}/{name}",
            expected="names that are unique within the model",
            received=f"{name!r} twice",
            fix="give the new layer another name, or rename the old one first",
        )
    )


# --- calls --------------------------------------------------------------------------


def add_input(
    table: Table, key: int, tensor: Any, *, last: bool = False
) -> tuple[Table, Slot]:
    """Returns the table with one more input, the first or the last call of a model."""
    node = _keras.producer(tensor)
    table, part = table.adding(node.operation)
    arguments: Any = ((), {})
    call = Call(part, arguments, (tensor,), node=node, read=arguments)
    scope = table.scope_of(key)
    calls = [*scope.calls, call] if last else [call, *scope.calls]
    return table.having(key, scope=scope.having(calls)), Slot(call.number)


def add_call(
    table: Table, key: int, new: Any, given: Any, *, verb: str
) -> tuple[Table, list[Slot]]:
    """Returns the table with one more call in a model, and what it returns.

    Args:
        table: The table.
        key: The model.
        new: The operation, or a function of tensors.
        given: What it is called with: slots, in the structure of its first argument.
        verb: What is being done, for messages.
    """
    if is_tensor_function(new):
        return add_function(table, key, new, ((given,), {}), verb=verb)
    name = free_name(table, key, new, verb=verb)
    table, part = table.adding(new, name=name)
    return add_call_of(table, key, part, ((given,), {}), verb=verb)


def add_call_of(
    table: Table, key: int, part: int, arguments: Any, *, verb: str
) -> tuple[Table, list[Slot]]:
    """Returns the table with one more call of a part, and what it returns."""
    call = Call(part, arguments, ())
    scope = table.scope_of(key)
    calls = in_order([*scope.calls, call])
    assert calls is not None
    table = table.having(key, scope=scope.having(calls))
    table = infer.refresh(table, key, [call.number], verb=verb)
    outputs = table.scope_of(key).by_number[call.number].outputs
    return table, [Slot(call.number, i) for i in range(len(outputs))]


def add_function(
    table: Table, key: int, function: Callable[..., Any], arguments: Any, *, verb: str
) -> tuple[Table, list[Slot]]:
    """Returns the table with the calls that a function of tensors makes.

    It is called once, on symbolic tensors, and what it did is written down.
    """
    splicer = Splicer(table, key, verb=verb)
    made = splicer.add(function, arguments)
    return splicer.table(), made


class Splicer:
    """Adds what functions of tensors do to the calls of a model.

    Args:
        table: The table.
        key: The model.
        verb: What is being done, for messages.
    """

    def __init__(self, table: Table, key: int, *, verb: str) -> None:
        self._before, self._key, self._verb = table, key, verb
        self._parts = table.reader()
        self._calls = dict(table.scope_of(key).by_number)
        names = (table[call.part].name for call in self._calls.values())
        self._names = collections.Counter(names)
        # Tensors are known by their ids: they must stay.
        self._alive: list[Any] = []

    def table(self) -> Table:
        """Returns the table with all that was added."""
        table = dataclasses.replace(self._before, parts=self._parts.parts)
        scope = table.scope_of(self._key).having(self._calls.values())
        return table.having(self._key, scope=scope)

    def tensor(self, slot: Slot) -> Any:
        """Returns a symbolic tensor like the one in a slot."""
        return self._calls[slot.call].outputs[slot.output]

    def add(
        self,
        function: Callable[..., Any],
        arguments: Any,
        *,
        parts: Mapping[int, int] | None = None,
        leaving: Iterable[int] = (),
    ) -> list[Slot]:
        """Adds the calls that a function makes, and returns what it returns.

        Args:
            function: The function.
            arguments: What it is called with, `Slot`s in place of tensors.
            parts: The keys of parts that operations stand for, by their ids.
            leaving: The numbers of calls that it replaces: their names become free.
        """
        slots, outputs, nodes = self._traced(function, arguments)
        for number in leaving:
            name = self._before[self._calls[number].part].name
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        for node in nodes:
            part = (parts or {}).get(address(node.operation))
            if part is None:
                part = self._part(node.operation)
            given = _keras.map_leaves(
                lambda x: slots.get(address(x), x), _keras.call_arguments(node)
            )
            call = Call(part, given, tuple(node.outputs))
            for i, tensor in enumerate(node.outputs):
                slots[address(tensor)] = Slot(call.number, i)
            self._calls[call.number] = call
            self._names[self._parts.parts[part].name] += 1
        for tensor in outputs:
            if address(tensor) not in slots:
                raise UsageError(
                    explain(
                        f"`{self._verb}`: the function returned something that it did "
                        "not make of the tensors it was given.",
                        where=f"{self._before[self._key].name}, {function!r}",
                        expected="symbolic tensors",
                        received=f"{tensor!r}",
                        fix="return what layers and `keras.ops` return",
                    )
                )
        return [slots[address(tensor)] for tensor in outputs]

    def _part(self, operation: Any) -> int:
        known = self._parts.key_of(operation)
        if known is not None:
            return known
        name = _free(self._names, operation)
        if name is None:
            raise name_clash(self._before, self._key, operation.name, self._verb)
        key = self._parts.add(operation)
        part = dataclasses.replace(self._parts.parts[key], name=name)
        self._parts.parts[key] = part
        return key

    def _traced(
        self, function: Callable[..., Any], arguments: Any
    ) -> tuple[dict[int, Slot], list[Any], list[Any]]:
        """Calls a function on tensors that belong to no graph."""
        tensors = {s: _keras.detached(self.tensor(s)) for s in slots_in(arguments)}
        slots = {address(tensor): slot for slot, tensor in tensors.items()}
        args, kwargs = put(arguments, tensors)
        self._alive.append(tensors)
        with (
            _keras.unnoted_calls() as noted,
            _keras.quiet_globals(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            try:
                outputs = keras.tree.flatten(function(*args, **kwargs))
            except UsageError:  # The function says itself what is wrong, or declines.
                raise
            except Exception as error:
                shapes = ", ".join(str(tensor.shape) for tensor in tensors.values())
                raise UsageError(
                    explain(
                        f"`{self._verb}`: the function cannot be called there.",
                        where=f"{self._before[self._key].name}, {function!r}",
                        expected="a function that takes the tensors at that place",
                        received=f"{shapes}: {trials.reason(error)}",
                        fix="try the function on `keras.Input` tensors of these shapes",
                    )
                ) from error
            nodes = _keras.calls_behind(outputs, set(slots))
            noted.extend(node.operation for node in nodes)
        return slots, outputs, nodes


def lead(
    table: Table,
    key: int,
    moved: Mapping[Slot, Slot],
    *,
    verb: str,
    apart_from: Iterable[int] = (),
    only: Iterable[int] | None = None,
) -> Table:
    """Returns the table with some tensors of a model replaced by others.

    Args:
        table: The table.
        key: The model.
        moved: For each tensor the one that takes its place.
        verb: What is being done, for messages.
        apart_from: Calls that go on being given the old ones.
        only: The only calls that are given the new ones, if not all.
    """
    scope = table.scope_of(key)
    kept, chosen = set(apart_from), None if only is None else set(only)
    other = {
        old
        for old, new in moved.items()
        if not infer.alike([scope.tensor(old)], [scope.tensor(new)])
    }
    calls, stale = [], []
    for call in scope.calls:
        is_meant = call.number in chosen if chosen is not None else True
        if is_meant and call.number not in kept:
            fed = call.fed(moved)
            # What is given tensors like those it had returns what it returned.
            if any(slot in other for slot in call.slots):
                stale.append(call.number)
            call = fed
        calls.append(call)
    ordered = in_order(calls)
    if ordered is None:
        raise UsageError(
            explain(
                f"`{verb}` would make a circle: a call that needs its own result.",
                where=table[key].name,
                expected="calls that can be put in an order",
                received="a circle through "
                + ", ".join(table[table_call.part].name for table_call in calls[-3:]),
                fix="choose places of which one does not come before the other",
            )
        )
    outputs = scope.outputs if chosen is not None else put(scope.outputs, moved)
    before = [scope.tensor(slot) for slot in slots_in(scope.outputs)]
    table = table.having(key, scope=scope.having(ordered, outputs=outputs).used)
    return infer.refresh(table, key, stale, verb=verb, before=before)
