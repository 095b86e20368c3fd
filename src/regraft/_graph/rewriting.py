"""The verb `rewrite`: what does one thing is made to do it in another way."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from .. import _keras
from .._errors import UsageError, UsageTypeError, did_you_mean, explain
from .._identity import address
from . import build, trials
from .assemble import Assembly
from .calls import Call, Scope
from .matching import Match, Matcher, Miss
from .patterns import Pattern, Trace, name_of, parameters_of, refused
from .slots import Slot, put
from .splice import Splicer, another, lead, name_clash
from .table import Table, scopes

# How often a pattern is tried on tensors of the model before it is given up.
MOST_TRIALS = 500

# Shapes that a pattern is tried on when it works with none of the model's.
PLAIN_SHAPES = ((None, 8), (None, 8, 8), (None, 8, 8, 8), (None, 8, 8, 8, 8), (None,))


def rewrite(
    table: Table, pattern: Any, replacement: Any, *, count: int | None
) -> Table:
    """Puts what a replacement does wherever a pattern is found."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
        raise UsageTypeError(
            explain(
                "`rewrite`: `count` must be a whole number.",
                where="argument `count`",
                expected="how often the pattern is to be found, or None",
                received=f"{count!r} (of type {type(count).__name__})",
                fix="pass for example `count=2`",
            )
        )
    operations = [part.operation for part in table.parts.values()]
    with _keras.calls_forgotten(operations):
        return _Rewriting(table, pattern, replacement).run(count)


class _Declined(UsageError):
    """The replacement returned `NotImplemented`."""


class _Rewriting:
    def __init__(self, table: Table, pattern: Any, replacement: Any) -> None:
        self._table = table
        self._before = table
        self._pattern = Pattern(pattern)
        self._replacement = replacement
        self._names = self._replacement_names()
        self._keys = {
            address(part.operation): key
            for key, part in table.parts.items()
            if not part.group and part.operation is not None
        }
        self._ready: dict[int, Any] = {}
        self._found: list[str] = []
        self._declined = 0
        self._miss = Miss()

    def run(self, count: int | None) -> Table:
        trace = self._trial()
        self._pattern.check(trace)
        for key in list(scopes(self._before)):
            self._rewrite_scope(key, trace)
        found = len(self._found)
        if count is not None and count != found:
            raise self._other_count(count, trace)
        if not found and count is None and not self._declined:
            raise self._nowhere(trace)
        note = f"rewrite: {name_of(self._pattern.function)} found {_times(found)}"
        if self._declined:
            note += f", declined by the replacement {_times(self._declined)}"
        return self._table.saying(note)

    def _replacement_names(self) -> list[str]:
        known = [*self._pattern.tensors, *self._pattern.layers]
        names = []
        for parameter in parameters_of(self._replacement, "replacement"):
            if parameter.name in known:
                names.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise refused(
                    f"the replacement wants {parameter.name!r}, which the pattern does "
                    "not have.",
                    self._replacement,
                    expected=f"parameters among {', '.join(known)}",
                    received=parameter.name,
                    fix="name the parameters of both functions alike."
                    f"{did_you_mean(parameter.name, known)}",
                )
        return names

    # --- what the pattern does --------------------------------------------------------

    def _trial(self) -> Trace:
        """Traces the pattern with tensors of the model that it works with."""
        names = self._pattern.tensors
        specs = self._specs()
        alike = ((spec,) * len(names) for spec in specs)
        mixed = itertools.product(specs, repeat=len(names)) if len(names) > 1 else ()
        plain = [_keras.KerasTensor(shape) for shape in PLAIN_SHAPES]
        others = ((spec,) * len(names) for spec in plain)
        failure: Exception | None = None
        tried = itertools.islice(itertools.chain(alike, mixed), MOST_TRIALS)
        for tensors in itertools.chain(tried, others):
            given = dict(zip(names, tensors, strict=True))
            try:
                return self._pattern.trace(given, self._guess)
            except UsageError:
                raise
            except Exception as error:  # Not with these shapes: with others, perhaps.
                failure = failure or error
        assert failure is not None
        raise refused(
            "the pattern cannot be called.",
            self._pattern.function,
            expected="a function that works with tensors of the model",
            received=f"{type(failure).__name__}: {trials.reason(failure)}",
            fix="try it on `keras.Input` tensors, with real layers",
        ) from failure

    def _specs(self) -> list[Any]:
        """Returns one tensor of the model of each kind."""
        found: dict[Any, Any] = {}
        for scope in self._scopes():
            for tensor in (x for call in scope.calls for x in call.outputs):
                found.setdefault((tensor.shape, tensor.dtype), tensor)
        return list(found.values())

    def _scopes(self) -> Iterator[Scope]:
        yield from map(self._before.scope_of, scopes(self._before))

    def _guess(self, name: str, turn: int, given: list[Any]) -> list[Any]:
        """Returns what a layer of the pattern might return: what one like it does."""
        classes = self._pattern.layers[name]
        shapes = [x.shape for x in given]
        for scope, is_same in itertools.product(self._scopes(), (True, False)):
            for call in scope.calls:
                if isinstance(self._before[call.part].operation, classes):
                    taken = [scope.tensor(slot).shape for slot in call.slots]
                    if taken == shapes or not is_same:
                        return [_keras.detached(x) for x in call.outputs]
        return [_keras.detached(given[0])]

    # --- matches ------------------------------------------------------------------

    def _rewrite_scope(self, key: int, trace: Trace) -> None:
        scope = self._before.scope_of(key)
        matcher = Matcher(
            self._pattern,
            trace,
            scope,
            operation_of=self._operation,
            name_of=lambda call: self._path(key, call),
            key_of=lambda operation: self._keys.get(address(operation)),
            miss=self._miss,
        )
        splicer = Splicer(self._table, key, verb="rewrite")
        taken: set[int] = set()
        moved: dict[Slot, Slot] = {}
        for match in matcher.matches(taken):
            outputs = [
                Slot(match.calls[slot.call].number, slot.output)
                for slot in trace.outputs
            ]
            try:
                made = self._replace(splicer, key, match, outputs)
            except _Declined:
                self._declined += 1
                continue
            taken |= match.numbers
            moved.update(zip(outputs, made, strict=True))
            self._found.append(self._path(key, match.calls[trace.outputs[0].call]))
        if taken:
            led = {old: _end_of(new, moved) for old, new in moved.items()}
            self._table = lead(splicer.table(), key, led, verb="rewrite")
            self._check_names(key)

    def _replace(
        self, splicer: Splicer, key: int, match: Match, outputs: list[Slot]
    ) -> list[Slot]:
        """Adds what the replacement does in the place of a match."""
        layers = {name: self._whole(part, match) for name, part in match.layers.items()}
        tensors = [name for name in self._names if name in match.tensors]

        def function(*given: Any) -> Any:
            known = {**layers, **dict(zip(tensors, given, strict=True))}
            returned = self._replacement(**{name: known[name] for name in self._names})
            if returned is NotImplemented:
                raise _Declined
            return returned

        function.__qualname__ = name_of(self._replacement)
        made = splicer.add(
            function,
            (tuple(match.tensors[name] for name in tensors), {}),
            parts={address(layers[name]): part for name, part in match.layers.items()},
            leaving=match.numbers,
        )
        self._check_returned(splicer, outputs, made, key, match)
        return made

    def _check_returned(
        self,
        splicer: Splicer,
        old: list[Slot],
        new: list[Slot],
        key: int,
        match: Match,
    ) -> None:
        where = f"{name_of(self._replacement)}, at " + ", ".join(
            self._path(key, call) for call in match.calls.values()
        )
        if len(old) != len(new):
            raise UsageError(
                explain(
                    "`rewrite`: the replacement returns another number of tensors than "
                    "the pattern.",
                    where=where,
                    expected=f"{len(old)} tensor(s)",
                    received=f"{len(new)}",
                    fix="return one for each that the pattern returns, in its order",
                )
            )
        for i, (before, after) in enumerate(zip(old, new, strict=True)):
            wanted, got = splicer.tensor(before).shape, splicer.tensor(after).shape
            if not trials.shapes_match(wanted, got):
                raise UsageError(
                    explain(
                        "`rewrite`: the replacement returns a tensor of another shape.",
                        where=where,
                        expected=f"{wanted} as output {i}",
                        received=f"{got}",
                        fix="return tensors like those of the pattern; where shapes "
                        "are to change, use `replace`",
                    )
                )

    def _check_names(self, key: int) -> None:
        seen: dict[str, int] = {}
        for call in self._table.scope_of(key).calls:
            name = self._table[call.part].name
            if seen.setdefault(name, call.part) != call.part:
                raise name_clash(self._table, key, name, "rewrite")

    # --- layers -------------------------------------------------------------------

    def _operation(self, key: int) -> Any:
        """Returns the operation of a part as it will be, for looking at it."""
        part = self._before[key]
        if part.operation is None or part.scope is not None:
            return part.operation
        is_plain = not part.changes and not part.held
        return part.operation if is_plain else self._made(key)

    def _whole(self, key: int, match: Match) -> Any:
        """Returns the operation of a part as it will be, for reading and calling it."""
        part = self._before[key]
        shared = [k for k in match.layers.values() if k != key]
        is_double = any(self._before[k].operation is part.operation for k in shared)
        if part.operation is None or is_double or key in self._before.changed:
            made = self._made(key)
        else:
            made = part.operation
        if isinstance(made, _keras.Layer) and not made.built:
            made = self._ready[key] = self._built(made, key, match)
        return made

    def _made(self, key: int) -> Any:
        """Returns a copy of a part with all that was edited."""
        if key not in self._ready:
            table = self._before
            if key not in table.changed:
                self._ready[key] = table[key].operation
            elif table[key].scope is not None:
                below = dataclasses.replace(table, root=key, notes=())
                self._ready[key] = build.build(
                    below, name=None, mismatch="fit", compiled="drop"
                )
            else:
                assembly = Assembly(table)
                assembly.copy(table.below(key), {})
                self._ready[key] = assembly.operation(key)
        return self._ready[key]

    def _built(self, layer: Any, key: int, match: Match) -> Any:
        """Returns a copy of a new layer, with weights as it might get them."""
        call = next(call for call in match.calls.values() if call.part == key)
        scope = next(x for x in self._scopes() if call.number in x.by_number)
        given = {slot: _keras.detached(scope.tensor(slot)) for slot in call.slots}
        args, kwargs = put(call.arguments, given)
        copy = another(layer)
        copy(*args, **kwargs)
        return copy

    # --- messages -----------------------------------------------------------------

    def _path(self, key: int, call: Call) -> str:
        name = self._before[call.part].name
        return name if key == self._before.root else f"{self._before[key].name}/{name}"

    def _nowhere(self, trace: Trace) -> UsageError:
        return UsageError(
            explain(
                "`rewrite`: the pattern is nowhere in the model.",
                where=self._before[self._before.root].name,
                expected=self._pattern.text(trace),
                received=f"as the nearest: {self._miss.text}",
                fix="look at `print(graph)`; layers and `keras.ops` of the same name "
                "are different operations",
            )
        )

    def _other_count(self, count: int, trace: Trace) -> UsageError:
        shown = ", ".join(self._found[:5]) + (", ..." if len(self._found) > 5 else "")
        at = f", at {shown}" if self._found else f"; the nearest: {self._miss.text}"
        return UsageError(
            explain(
                f"`rewrite`: the pattern is found {_times(len(self._found))}.",
                where=self._before[self._before.root].name,
                expected=f"{_times(count)}: {self._pattern.text(trace)}",
                received=f"{_times(len(self._found))}{at}",
                fix="correct `count=`, or the pattern",
            )
        )


def _end_of(slot: Slot, moved: dict[Slot, Slot]) -> Slot:
    """Follows a tensor that was replaced by one that was replaced, too."""
    while slot in moved:
        slot = moved[slot]
    return slot


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
