"""Finds the calls of a model that do what a pattern does."""

from __future__ import annotations

import inspect
import itertools
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from .. import _keras
from .._errors import UsageError
from .calls import Call, Scope
from .patterns import Param, Pattern, Step, Trace, in_reach
from .slots import Slot, slots_in

# With more tensors than these, a sum is only found in the order it was written in.
MOST_PERMUTED = 4

# For `training` where nobody passed it: the call around it says it, not the default.
AS_CALLED = "as the model is called"


@dataclass(frozen=True, eq=False)
class Match:
    """Where a pattern was found.

    Attributes:
        calls: For each step of the pattern the call that does the same.
        tensors: What its parameters stand for.
        layers: The keys of the parts that its layers stand for.
        expected: The calls that must be those of steps not yet looked at.
    """

    calls: dict[int, Call] = field(default_factory=dict)
    tensors: dict[str, Slot] = field(default_factory=dict)
    layers: dict[str, int] = field(default_factory=dict)
    expected: dict[int, int] = field(default_factory=dict)

    @property
    def numbers(self) -> set[int]:
        """The numbers of the calls."""
        return {call.number for call in self.calls.values()}


@dataclass
class Miss:
    """How far the best candidate came that is no match."""

    steps: int = 0
    text: str = "nothing like its last operation"

    def note(self, steps: int, text: Callable[[], str]) -> None:
        """Notes a candidate, if it came further than those before."""
        if steps > self.steps:
            self.steps, self.text = steps, text()


class Matcher:
    """Looks for a pattern in the calls of one model.

    Args:
        pattern: The pattern.
        trace: What it does, at some place.
        scope: The calls.
        operation_of: Returns the operation of a part, as it will be.
        name_of: Returns the path of a call, for messages.
        key_of: Returns the key of the part that an operation is, if it is one.
        miss: Notes how far candidates came.
    """

    def __init__(
        self,
        pattern: Pattern,
        trace: Trace,
        scope: Scope,
        *,
        operation_of: Callable[[int], Any],
        name_of: Callable[[Call], str],
        key_of: Callable[[Any], int | None],
        miss: Miss,
    ) -> None:
        self._pattern, self._trace, self._scope = pattern, trace, scope
        self._operation_of, self._name_of, self._key_of = operation_of, name_of, key_of
        self._miss = miss
        self._order = in_reach(trace)
        self._traces: dict[Any, Trace | None] = {}
        self._position = {call.number: i for i, call in enumerate(scope.calls)}
        self._ends = set(slots_in(scope.outputs))
        self._users: dict[Slot, list[Call]] = {}
        for call in scope.calls:
            for slot in dict.fromkeys(call.slots):
                self._users.setdefault(slot, []).append(call)

    def matches(self, taken: set[int]) -> Iterator[Match]:
        """Yields matches in the order of their last calls.

        Args:
            taken: The numbers of calls that belong to other matches. The caller adds
                those of each match that it accepts.
        """
        for call in self._scope.calls:
            if call.number in taken:
                continue
            for match in self._extended(Match(), 0, call):
                if match.numbers & taken:
                    self._say(len(match.calls), call, "it overlaps an earlier match")
                elif self._is_closed(match) and self._is_exact(match):
                    yield match
                    if call.number in taken:
                        break

    # --- structure ----------------------------------------------------------------

    def _extended(self, match: Match, depth: int, anchor: Call) -> Iterator[Match]:
        """Yields the ways to go on with a match, whatever is called with numbers."""
        if depth == len(self._order):
            yield match
            return
        index = self._order[depth]
        for call in self._candidates(match, index, anchor if depth == 0 else None):
            if call.number in match.numbers:
                continue
            for longer in self._with(match, index, call):
                yield from self._extended(longer, depth + 1, anchor)

    def _candidates(self, match: Match, index: int, anchor: Call | None) -> list[Call]:
        if anchor is not None:
            return [anchor]
        if index in match.expected:
            return [self._scope.by_number[match.expected[index]]]
        for end in keras.tree.flatten(self._trace.steps[index].arguments):
            known = self._found(match, end)
            if known is not None:
                return self._users.get(known, [])
        return []

    @staticmethod
    def _found(match: Match, end: Any) -> Slot | None:
        if isinstance(end, Param):
            return match.tensors.get(end.name)
        if isinstance(end, Slot) and end.call in match.calls:
            return Slot(match.calls[end.call].number, end.output)
        return None

    def _with(self, match: Match, index: int, call: Call) -> Iterator[Match]:
        """Yields the match with one more step, in all ways that it fits."""
        step, done = self._trace.steps[index], len(match.calls)
        operation = self._operation_of(call.part)
        if not self._is_kind(step, operation, call.part):
            wanted = self._wanted(step)
            self._say(done, call, f"{type(operation).__name__} is not {wanted}")
            return
        layers = match.layers
        if step.layer is not None:
            if layers.get(step.layer, call.part) != call.part:
                self._say(done, call, f"it is another layer than {step.layer!r} before")
                return
            layers = {**layers, step.layer: call.part}
        calls = {**match.calls, index: call}
        is_found = False
        for pairs in _pairings(operation, step.arguments, call.arguments):
            ends = self._bound(match, pairs)
            if ends is not None:
                is_found = True
                yield Match(calls, ends[0], layers, ends[1])
        if not is_found:
            self._say(done, call, "it is given other tensors")

    def _bound(
        self, match: Match, pairs: list[tuple[Any, Any]]
    ) -> tuple[dict[str, Slot], dict[int, int]] | None:
        tensors, expected = dict(match.tensors), dict(match.expected)
        for wanted, given in pairs:
            if not isinstance(wanted, Param | Slot):
                if isinstance(given, Slot):
                    return None
            elif not isinstance(given, Slot):
                return None
            elif isinstance(wanted, Param):
                if tensors.setdefault(wanted.name, given) != given:
                    return None
            elif wanted.output != given.output:
                return None
            elif wanted.call in match.calls:
                if match.calls[wanted.call].number != given.call:
                    return None
            elif expected.setdefault(wanted.call, given.call) != given.call:
                return None
        return tensors, expected

    def _is_kind(self, step: Step, operation: Any, part: int) -> bool:
        if step.layer is not None:
            return isinstance(operation, self._pattern.layers[step.layer])
        known = self._key_of(step.operation)
        return (
            part == known
            if known is not None
            else (type(operation) is type(step.operation))
        )

    def _wanted(self, step: Step) -> str:
        if step.layer is None:
            return type(step.operation).__name__
        return " or ".join(x.__name__ for x in self._pattern.layers[step.layer])

    # --- what else must hold --------------------------------------------------------

    def _is_closed(self, match: Match) -> bool:
        """Tells whether nobody else needs what is inside, and no circle would come."""
        numbers, count = match.numbers, len(match.calls)
        for index, call in match.calls.items():
            for i, slot in enumerate(call.results):
                if Slot(index, i) in self._trace.outputs:
                    continue
                others = [
                    c for c in self._users.get(slot, ()) if c.number not in numbers
                ]
                if others or slot in self._ends:
                    who = self._name_of(others[0]) if others else "the outputs"
                    self._say(count, call, f"{who}, outside of the pattern, needs it")
                    return False
        given = {slot.call for slot in match.tensors.values()}
        if given & numbers or (
            len(self._trace.outputs) > 1 and self._comes_back(numbers, given)
        ):
            self._say(count, match.calls[self._order[0]], "it is given what it makes")
            return False
        return True

    def _comes_back(self, inside: set[int], given: set[int]) -> bool:
        """Tells whether a tensor that is given depends on calls of the match."""
        last = max(self._position[number] for number in given)
        seen, stack = set(inside), list(inside)
        while stack:
            call = self._scope.by_number[stack.pop()]
            for slot in call.results:
                for user in self._users.get(slot, ()):
                    if user.number in given:
                        return True
                    if user.number not in seen and self._position[user.number] < last:
                        seen.add(user.number)
                        stack.append(user.number)
        return False

    def _is_exact(self, match: Match) -> bool:
        """Tells whether the pattern, given what is there, does the same as is there."""
        trace = self._traced(match)
        count = len(match.calls)
        first = match.calls[self._order[0]]
        if trace is None:
            self._say(count, first, "the pattern does something else with shapes there")
            return False
        for index, call in match.calls.items():
            step = trace.steps[index]
            operation = self._operation_of(call.part)
            known = None if step.layer else self._key_of(step.operation)
            if (
                not step.layer
                and known is None
                and not same_value(
                    _keras.settings(step.operation), _keras.settings(operation)
                )
            ):
                self._say(count, call, "it has other settings")
                return False
            if not any(
                all(self._agree(match, a, b) for a, b in pairs)
                for pairs in _pairings(operation, step.arguments, call.arguments)
            ):
                self._say(count, call, "it is called with other arguments")
                return False
        return True

    def _agree(self, match: Match, wanted: Any, given: Any) -> bool:
        if isinstance(wanted, Param | Slot):
            # What is given may be an array, which compares number by number.
            return isinstance(given, Slot) and self._found(match, wanted) == given
        return same_value(wanted, given)

    def _traced(self, match: Match) -> Trace | None:
        """Traces the pattern with the tensors of a match."""
        scope = self._scope
        tensors = {name: scope.tensor(slot) for name, slot in match.tensors.items()}
        returned = {
            (step.layer, step.turn): list(match.calls[i].outputs)
            for i, step in enumerate(self._trace.steps)
            if step.layer is not None
        }
        key = (
            tuple(map(_spec, tensors.values())),
            tuple((who, tuple(map(_spec, what))) for who, what in returned.items()),
        )
        if key not in self._traces:
            try:
                trace = self._pattern.trace(
                    tensors,
                    lambda name, turn, _: [
                        _keras.detached(x) for x in returned[name, turn]
                    ],
                )
            except UsageError:
                raise
            except Exception:  # It does not work with these shapes.
                self._traces[key] = None
            else:
                self._traces[key] = trace if trace.is_like(self._trace) else None
        return self._traces[key]

    def _say(self, steps: int, call: Call, why: str) -> None:
        total = len(self._order)
        self._miss.note(
            steps, lambda: f"{steps} of {total} at {self._name_of(call)}, but {why}"
        )


def _spec(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, _keras.mask_of(tensor) is not None


# --- arguments ------------------------------------------------------------------------


def _pairings(
    operation: Any, wanted: Any, given: Any
) -> Iterator[list[tuple[Any, Any]]]:
    """Yields the arguments of a step next to those of a call, in all orders."""
    one, other = _by_name(operation, wanted), _by_name(operation, given)
    if one is None or other is None or one.keys() != other.keys():
        return
    if not _keras.same_structure(one, other):
        return
    ours, theirs = keras.tree.flatten(one), keras.tree.flatten(other)
    if not _keras.is_commutative(operation) or len(ours) > MOST_PERMUTED:
        yield list(zip(ours, theirs, strict=True))
        return
    for order in itertools.permutations(theirs):
        yield list(zip(ours, order, strict=True))


def _by_name(operation: Any, arguments: Any) -> dict[str, Any] | None:
    args, kwargs = arguments
    try:
        bound = inspect.signature(operation.call).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    passed = set(bound.arguments)
    bound.apply_defaults()
    if "training" in bound.arguments and "training" not in passed:
        bound.arguments["training"] = AS_CALLED
    # Lists and tuples of tensors are the same to an operation.
    return {name: _as_list(value) for name, value in bound.arguments.items()}


def _as_list(value: Any) -> Any:
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return [_as_list(x) for x in value]
    return value


def same_value(one: Any, other: Any) -> bool:
    """Tells whether two settings or arguments, which are no tensors, are equal."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same_value(one[name], other[name]) for name in one
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, numbers.Number) and isinstance(other, numbers.Number):
        is_whole = [isinstance(x, numbers.Integral) for x in (one, other)]
        return is_whole[0] == is_whole[1] and one == other
    if _is_array(one) or _is_array(other):
        return (
            _is_array(one)
            and _is_array(other)
            and np.array_equal(
                keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other)
            )
        )
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # Whatever cannot be compared is not the same.
        return False


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or keras.ops.is_tensor(value)
