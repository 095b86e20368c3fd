"""Calls, and the scopes of models that make them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .slots import Slot, put, same, slots_in

_numbers = itertools.count()


def next_number() -> int:
    """Returns a number that no part and no call has."""
    return next(_numbers)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a part.

    Attributes:
        part: The key of what is called.
        arguments: What it is called with, `Slot`s in place of tensors.
        outputs: Symbolic tensors like those that it returns.
        number: By which `Slot`s name it.
        node: Keras's record of the call, if it was read from a model.
        read: The arguments as they were read.
    """

    part: int
    arguments: tuple[Any, dict[str, Any]]
    outputs: tuple[Any, ...]
    number: int = field(default_factory=next_number)
    node: Any = None
    read: Any = None

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The tensors that it is called with."""
        return slots_in(self.arguments)

    @cached_property
    def results(self) -> tuple[Slot, ...]:
        """The tensors that it returns."""
        return tuple(Slot(self.number, i) for i in range(len(self.outputs)))

    @property
    def is_as_read(self) -> bool:
        """Whether it is called with what it was called with in the model."""
        if self.node is None:
            return False
        return self.arguments is self.read or same(self.arguments, self.read)

    def fed(self, moved: Mapping[Slot, Slot]) -> Call:
        """Returns the call with other tensors in place of some."""
        if not any(slot in moved for slot in self.slots):
            return self
        return dataclasses.replace(self, arguments=put(self.arguments, moved))


@dataclass(frozen=True, eq=False)
class Scope:
    """The calls of a model, in an order that works.

    Attributes:
        calls: The calls.
        inputs: The model's inputs: `Slot`s, in the structure that it takes.
        outputs: The model's outputs, in the structure that it returns.
    """

    calls: tuple[Call, ...]
    inputs: Any
    outputs: Any

    @cached_property
    def by_number(self) -> dict[int, Call]:
        """The calls, by number."""
        return {call.number: call for call in self.calls}

    def consumers(self, slot: Slot) -> list[Call]:
        """Returns the calls that are given a tensor."""
        return [call for call in self.calls if slot in call.slots]

    def tensor(self, slot: Slot) -> Any:
        """Returns a symbolic tensor like the one in a slot."""
        return self.by_number[slot.call].outputs[slot.output]

    def having(self, calls: Iterable[Call] | None = None, **ends: Any) -> Scope:
        """Returns the scope with other calls, in an order that works, or other ends."""
        calls = self.calls if calls is None else tuple(calls)
        return dataclasses.replace(self, calls=calls, **ends)

    def needed(self, ends: Any) -> set[int]:
        """Returns the numbers of the calls that tensors come from."""
        found = {slot.call for slot in slots_in(ends)}
        for call in reversed(self.calls):
            if call.number in found:
                found.update(slot.call for slot in call.slots)
        return found

    @cached_property
    def used(self) -> Scope:
        """The scope without the calls that no output needs."""
        needed = self.needed((self.inputs, self.outputs))
        calls = [call for call in self.calls if call.number in needed]
        return self if len(calls) == len(self.calls) else self.having(calls)


def in_order(calls: Iterable[Call]) -> tuple[Call, ...] | None:
    """Returns calls so that each comes after those it needs; None for a cycle.

    Those that may stay in their order do.
    """
    known = {call.number: call for call in calls}
    order: dict[int, Call] = {}
    waiting: set[int] = set()
    for call in known.values():
        stack = [call]
        while stack:
            current = stack[-1]
            needs = [
                known[slot.call]
                for slot in current.slots
                if slot.call in known and slot.call not in order
            ]
            if not needs or current.number in order:
                order.setdefault(current.number, current)
                stack.pop()
            elif current.number in waiting:
                return None
            else:
                waiting.add(current.number)
                stack.extend(reversed(needs))
    return tuple(order.values())
