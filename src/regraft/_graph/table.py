"""The form in which a graph is edited: numbered parts, and calls of them.

A `Table` lists the *parts* of a model (layers, operations, models inside it) by key.
A model's part has a *scope*: the calls it makes, each naming its part by key and the
tensors it is given by the number of the call that makes them. Keys and numbers stay
what they are through all edits, so exchanging a part, or a call, is one new entry;
whoever names it follows. Tables are never changed: each edit makes another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .. import _keras
from .._identity import address
from .calls import Call, Scope, next_number
from .slots import Slot, same


@dataclass(frozen=True, eq=False)
class Part:
    """How one operation of the new model is made.

    Attributes:
        operation: What it is a copy of; None for a model that is newly made.
        name: Its name.
        changes: Attributes that are set on the copy.
        settings: What the user asked for, from which the changes follow.
        held: The keys of the layers that it holds without being a graph.
        scope: The calls that it makes, if it is a model with a graph.
        is_new: Whether it was not in the model that was read.
        group: Parts of one group are copied together. Those of another group than 0
            have variables of their own, though others are copies of the same.
        takes_over: The operation whose weights it gets, where they fit.
    """

    operation: Any
    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    held: tuple[int, ...] = ()
    scope: Scope | None = None
    is_new: bool = False
    group: int = 0
    takes_over: Any = None


@dataclass(frozen=True, eq=False)
class Table:
    """The parts of a model, and which of them is the model.

    Attributes:
        parts: The parts, by key.
        root: The key of the model.
        notes: What edits have to say.
        read: The parts as they were read.
    """

    parts: Mapping[int, Part]
    root: int
    notes: tuple[str, ...] = ()
    read: Mapping[int, Part] = field(default_factory=dict)

    def __getitem__(self, key: int) -> Part:
        return self.parts[key]

    @property
    def scope(self) -> Scope:
        """The calls of the model."""
        return self.scope_of(self.root)

    def scope_of(self, key: int) -> Scope:
        """Returns the calls of a part that is a model."""
        scope = self.parts[key].scope
        assert scope is not None
        return scope

    def having(self, key: int, **changes: Any) -> Table:
        """Returns the table with one part changed."""
        part = dataclasses.replace(self.parts[key], **changes)
        return dataclasses.replace(self, parts={**self.parts, key: part})

    def saying(self, note: str) -> Table:
        """Returns the table with one more thing to say."""
        return dataclasses.replace(self, notes=(*self.notes, note))

    def adding(
        self, operation: Any, *, inside: Mapping[int, int] | None = None, **about: Any
    ) -> tuple[Table, int]:
        """Returns the table with one more part and those inside it, and its key.

        Args:
            operation: What it is a copy of.
            inside: For the ids of operations inside it the parts that they are.
            **about: What is to be said of the part.
        """
        reader = self.reader(inside)
        key = reader.add(operation)
        table = dataclasses.replace(self, parts=reader.parts)
        return (table.having(key, **about) if about else table), key

    def reader(self, inside: Mapping[int, int] | None = None) -> Reader:
        """Returns what lists new parts, besides a copy of those that are known.

        Args:
            inside: For the ids of operations the parts that they are.
        """
        return Reader(dict(self.parts), is_new=True, inside=inside)

    def doubling(self, key: int) -> tuple[Table, int]:
        """Returns the table with a second one of a part, inside too, and its key."""
        group = next_number()
        below = {old: next_number() for old in self.below(key)}
        doubles: dict[int, Part] = {}
        read: dict[int, Part] = {}
        for old, new in below.items():
            part, before = self.parts[old], self.read.get(old)
            doubles[new] = _double(part, below, group)
            if before is not None:  # What was edited stays edited.
                is_same = part is before
                read[new] = doubles[new] if is_same else _double(before, below, group)
        table = dataclasses.replace(
            self, parts={**self.parts, **doubles}, read={**self.read, **read}
        )
        return table, below[key]

    def key_of(self, operation: Any) -> int | None:
        """Returns the key of the part that is a copy of an operation."""
        for key, part in self.parts.items():
            if part.operation is operation and not part.group:
                return key
        return None

    @cached_property
    def reached(self) -> dict[int, None]:
        """The keys of all parts that the model is made of, in order."""
        return self.below(self.root)

    def below(self, key: int) -> dict[int, None]:
        """Returns the keys of a part and of all inside it, in order."""
        found: dict[int, None] = {}
        stack = [key]
        while stack:
            current = stack.pop()
            if current not in found:
                found[current] = None
                stack += reversed(self.inside(current))
        return found

    def inside(self, key: int) -> list[int]:
        """Returns the keys of what a part calls or holds."""
        part = self.parts[key]
        calls = () if part.scope is None else part.scope.calls
        return [*(call.part for call in calls), *part.held]

    @cached_property
    def changed(self) -> set[int]:
        """The keys of parts that are not, inside too, as they were read."""
        own = {key for key in self.reached if not self.is_as_read(key)}
        holders: dict[int, list[int]] = {}
        for key in self.reached:
            for inside in self.inside(key):
                holders.setdefault(inside, []).append(key)
        found, stack = set(own), list(own)
        while stack:
            for holder in holders.get(stack.pop(), ()):
                if holder not in found:
                    found.add(holder)
                    stack.append(holder)
        return found

    def is_as_read(self, key: int) -> bool:
        """Tells whether a part is what it was, whatever became of those inside."""
        part, read = self.parts[key], self.read.get(key)
        if read is None or part is read:
            return part is read
        # A new name alone is written on the copy: nothing is made or called anew.
        plain = ("operation", "held", "is_new", "group", "takes_over")
        if any(getattr(part, name) != getattr(read, name) for name in plain):
            return False
        if not same(dict(part.changes), dict(read.changes)):
            return False
        scope, before = part.scope, read.scope
        if scope is None or before is None or scope is before:
            return scope is before
        return (
            [call.number for call in scope.calls] == [x.number for x in before.calls]
            and all(
                call.is_as_read and call.part == old.part
                for call, old in zip(scope.calls, before.calls, strict=True)
            )
            and same((scope.inputs, scope.outputs), (before.inputs, before.outputs))
        )

    def clean_calls(self, key: int) -> set[int]:
        """Returns the calls of a model that are copied instead of being made again.

        Those are the calls that are as they were read, with all they depend on; and
        new inputs, which came with their only call.
        """
        if key not in self._clean:
            self._clean[key] = self._find_clean_calls(key)
        return self._clean[key]

    @cached_property
    def _clean(self) -> dict[int, set[int]]:
        """What was found before: a table does not change."""
        return {}

    def _find_clean_calls(self, key: int) -> set[int]:
        found: set[int] = set()
        inputs: set[int] = set()
        parts, changed, group = self.parts, self.changed, self.parts[key].group
        for call in self.scope_of(key).calls:
            node, part = call.node, parts[call.part]
            if node is None:
                continue
            is_same = part.operation is node.operation and part.group == group
            if is_same and call.part not in changed and call.is_as_read:
                if all(slot.call in found for slot in call.slots):
                    found.add(call.number)
            elif node.is_input:
                inputs.add(call.number)
        return found | inputs


def _double(part: Part, below: Mapping[int, int], group: int) -> Part:
    """Returns a part of another group, in which others have the keys given here."""
    scope = part.scope
    if scope is not None:
        calls = [
            dataclasses.replace(call, part=below.get(call.part, call.part))
            for call in scope.calls
        ]
        scope = scope.having(calls)
    held = tuple(below.get(inside, inside) for inside in part.held)
    return dataclasses.replace(part, group=group, scope=scope, held=held)


def read(model: Any) -> Table:
    """Reads the parts and calls of a model that has a graph."""
    reader = Reader({}, is_new=False)
    root = reader.add(model)
    return Table(reader.parts, root, read=dict(reader.parts))


class Reader:
    """Lists operations and what is inside them, each once."""

    def __init__(
        self,
        parts: dict[int, Part],
        *,
        is_new: bool,
        inside: Mapping[int, int] | None = None,
    ) -> None:
        self.parts = parts
        self._is_new = is_new
        known = ((address(p.operation), k) for k, p in parts.items() if not p.group)
        self._keys = {**dict(known), **(inside or {})}

    def key_of(self, operation: Any) -> int | None:
        """Returns the key of an operation, if it is listed."""
        return self._keys.get(address(operation))

    def add(self, operation: Any) -> int:
        """Lists an operation and all inside it, and returns its key."""
        stack = [operation]
        waiting: set[int] = set()
        while stack:
            current = stack[-1]
            if address(current) in self._keys:
                stack.pop()
                continue
            inside = [x for x in _inside(current) if address(x) not in self._keys]
            inside = [x for x in inside if address(x) not in waiting]
            if inside and address(current) not in waiting:
                waiting.add(address(current))
                stack.extend(inside)
                continue
            stack.pop()
            self._keys[address(current)] = next_number()
            self._put(current)
        self._fill(operation)
        return self._keys[address(operation)]

    def _put(self, operation: Any) -> None:
        key = self._keys[address(operation)]
        self.parts[key] = Part(operation, operation.name, is_new=self._is_new)

    def _fill(self, operation: Any) -> None:
        """Writes what is inside parts, now that all have keys."""
        stack, seen = [operation], set()
        while stack:
            current = stack.pop()
            key = self._keys[address(current)]
            part = self.parts[key]
            if key in seen or part.operation is not current:
                continue
            seen.add(key)
            if part.scope is not None or part.held:
                continue
            stack.extend(_inside(current))
            inner = _keras.inner_graph(current) if _is_layer(current) else None
            if inner is not None:
                scope = _read_scope(inner, lambda op: self._keys[address(op)])
                self.parts[key] = dataclasses.replace(part, scope=scope)
            elif _is_layer(current):
                held = tuple(self._keys[address(x)] for x in _inside(current))
                self.parts[key] = dataclasses.replace(part, held=held)


def _is_layer(operation: Any) -> bool:
    return isinstance(operation, _keras.Layer)


def _inside(operation: Any) -> list[Any]:
    """Returns the operations that an operation calls or holds."""
    if not _is_layer(operation):
        return []
    inner = _keras.inner_graph(operation)
    return held_by(operation) if inner is None else list(inner.operations)


def held_by(operation: Any) -> list[Any]:
    """Returns the layers that a layer holds and calls from its own code."""
    if not _is_layer(operation) or _keras.inner_graph(operation) is not None:
        return []
    return [x for x in _keras.sublayers(operation) if x is not operation]


def _read_scope(inner: Any, key_of: Callable[[Any], int]) -> Scope:
    slots: dict[int, Slot] = {}
    calls = []
    for node in _keras.call_order(inner):
        arguments: Any = ((), {})
        if not node.is_input:
            arguments = _keras.map_leaves(
                lambda x: slots.get(address(x), x), _keras.call_arguments(node)
            )
        call = Call(
            key_of(node.operation),
            arguments,
            tuple(node.outputs),
            node=node,
            read=arguments,
        )
        slots.update(zip(map(address, node.outputs), call.results, strict=True))
        calls.append(call)

    def find(struct: Any) -> Any:
        return _keras.map_leaves(lambda tensor: slots[address(tensor)], struct)

    return Scope(tuple(calls), find(inner.input), find(inner.output))


def scopes(table: Table) -> Iterator[int]:
    """Yields the keys of the parts that are models with a graph."""
    yield from (key for key in table.reached if table[key].scope is not None)
