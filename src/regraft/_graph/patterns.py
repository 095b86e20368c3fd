"""Patterns: functions of tensors and layers, written down as steps to be found.

A pattern is called once on symbolic tensors, with stand-ins for its layers. What it
did is a list of `Step`s. Their shapes may be those of another place than the one where
the pattern is found, so whoever finds it traces it again with the shapes there.
"""

from __future__ import annotations

import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from .. import _keras
from .._errors import UsageError, UsageTypeError, explain
from .._identity import address
from .slots import Slot, slots_in

# Given the name of a layer, which of its calls this is, and the tensors it is called
# with: what it returns.
Answer = Callable[[str, int, list[Any]], list[Any]]


@dataclass(frozen=True)
class Param:
    """A tensor that a pattern is given."""

    name: str


@dataclass(frozen=True, eq=False)
class Step:
    """One call in a pattern.

    Attributes:
        operation: What is called; None for a layer that the pattern is given.
        layer: The name of that layer.
        arguments: What it is called with: `Param`s, and `Slot`s that name steps.
        turn: Which call of its layer it is.
    """

    operation: Any
    layer: str | None
    arguments: Any
    turn: int = 0


@dataclass(frozen=True, eq=False)
class Trace:
    """What a pattern does."""

    steps: tuple[Step, ...]
    outputs: tuple[Slot, ...]

    def is_like(self, other: Trace) -> bool:
        """Tells whether the same is called, in the same order and wiring."""
        return self.outputs == other.outputs and [
            (type(s.operation), s.layer, s.turn, _ends(s)) for s in self.steps
        ] == [(type(s.operation), s.layer, s.turn, _ends(s)) for s in other.steps]


def _ends(step: Step) -> list[Any]:
    return [
        x for x in keras.tree.flatten(step.arguments) if isinstance(x, Slot | Param)
    ]


class Stand(_keras.Operation):
    """Stands for a layer while a pattern is traced."""

    def __init__(self, name: str, answer: Answer) -> None:
        super().__init__(name=name)
        self.answer = answer
        self.turns = 0

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Says what the layer would return."""
        given = _keras.tensors_in((args, kwargs))
        outputs = self.answer(self.name, self.turns, given)
        self.turns += 1
        return outputs[0] if len(outputs) == 1 else outputs

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a pattern only calls its layers: {name!r} of {vars(self).get('name')!r} "
            "can be read in the replacement"
        )


class Pattern:
    """A function of tensors and layers that is to be found.

    Parameters that are annotated with a class of layers, or have one as their
    default, are layers; all others are tensors.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.tensors: list[str] = []
        self.layers: dict[str, tuple[type, ...]] = {}
        for parameter in parameters_of(function, "pattern"):
            classes = _classes(parameter.annotation) or _classes(parameter.default)
            if classes:
                self.layers[parameter.name] = classes
            elif parameter.default is parameter.empty:
                self.tensors.append(parameter.name)
        if not self.tensors:
            raise refused(
                "the pattern takes no tensor.",
                function,
                expected="at least one parameter without a layer class",
                received=f"layers only: {', '.join(self.layers) or 'no parameters'}",
                fix="write for example `def pattern(x, conv: layers.Conv2D): ...`",
            )

    def trace(self, tensors: Mapping[str, Any], answer: Answer) -> Trace:
        """Calls the pattern, and returns what it did.

        Args:
            tensors: Symbolic tensors like those that it is given, by name.
            answer: Says what its layers return.
        """
        given = {name: _keras.detached(tensors[name]) for name in self.tensors}
        stands = {name: Stand(name, answer) for name in self.layers}
        with _keras.quiet_globals(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = self.function(**given, **stands)
        outputs = keras.tree.flatten(returned)
        self._check_outputs(outputs, {address(x): name for name, x in given.items()})
        return self._written_down(outputs, given)

    def _written_down(self, outputs: list[Any], given: dict[str, Any]) -> Trace:
        ends: dict[int, Any] = {address(x): Param(name) for name, x in given.items()}
        steps = []
        for i, node in enumerate(_keras.calls_behind(outputs, set(ends))):
            operation = node.operation
            arguments = keras.tree.map_structure(
                lambda x: ends.get(address(x), x), _keras.call_arguments(node)
            )
            if isinstance(operation, Stand):
                turn = _keras.history(node.outputs[0]).node_index
                steps.append(Step(None, operation.name, arguments, turn))
            else:
                steps.append(Step(operation, None, arguments))
            for j, tensor in enumerate(node.outputs):
                ends[address(tensor)] = Slot(i, j)
        return Trace(tuple(steps), tuple(ends[address(x)] for x in outputs))

    def _check_outputs(self, outputs: list[Any], given: dict[int, str]) -> None:
        for output in outputs:
            if address(output) in given:
                raise refused(
                    "the pattern returns what it is given.",
                    self.function,
                    expected="tensors that the pattern makes",
                    received=f"its parameter {given[address(output)]!r}",
                    fix="return only what layers and operations in it make",
                )
            if not _is_tensor(output) or _keras.producer(output) is None:
                raise refused(
                    "the pattern does not return tensors that it makes.",
                    self.function,
                    expected="what layers and `keras.ops` in it return",
                    received=f"{output!r} (of type {type(output).__name__})",
                    fix="call a layer or an operation on the parameters, and return "
                    "its result",
                )

    def check(self, trace: Trace) -> None:
        """Refuses patterns of which parts could be anywhere."""
        used = {
            x
            for step in trace.steps
            for x in keras.tree.flatten(step.arguments)
            if isinstance(x, Param)
        }
        called = {step.layer for step in trace.steps}
        unused = [name for name in self.tensors if Param(name) not in used]
        unused += [name for name in self.layers if name not in called]
        if unused:
            raise refused(
                f"the pattern does not use its parameter {unused[0]!r}.",
                self.function,
                expected="a pattern whose outputs depend on all its parameters",
                received=self.text(trace),
                fix="use it, or leave it out",
            )
        if len(in_reach(trace)) < len(trace.steps):
            raise refused(
                "the pattern consists of pieces without a connection.",
                self.function,
                expected="operations that are connected by the tensors between them",
                received=self.text(trace),
                fix="rewrite one piece after the other",
            )

    def text(self, trace: Trace) -> str:
        """Returns a pattern as one expression."""
        texts: list[str] = []

        def shown(x: Any) -> str:
            if isinstance(x, Param):
                return x.name
            if isinstance(x, Slot):
                return texts[x.call] + (f"[{x.output}]" if x.output else "")
            return repr(x)[:40]

        for step in trace.steps:
            name = step.layer or type(step.operation).__name__
            if step.layer:
                name = "|".join(kind.__name__ for kind in self.layers[step.layer])
            args, kwargs = step.arguments
            inside = [shown(x) for x in keras.tree.flatten((args, kwargs))]
            texts.append(f"{name}({', '.join(inside)})")
        return ", ".join(shown(x) for x in trace.outputs)[:300]


def in_reach(trace: Trace) -> list[int]:
    """Returns steps, the maker of the first output first, each connected to others.

    Makers of what a step is given come before other users of it: they are known.
    """
    users: dict[Any, list[int]] = {}
    for i, step in enumerate(trace.steps):
        for end in _ends(step):
            users.setdefault(end, []).append(i)
    found: dict[int, None] = {}
    stack = [trace.outputs[0].call]
    later: list[int] = []
    while stack or later:
        i = stack.pop() if stack else later.pop(0)
        if i in found:
            continue
        found[i] = None
        stack += [slot.call for slot in slots_in(trace.steps[i].arguments)]
        for end in _ends(trace.steps[i]):
            later += users[end]
        later += [
            u
            for end, who in users.items()
            if isinstance(end, Slot) and end.call == i
            for u in who
        ]
    return list(found)


# --- signatures -----------------------------------------------------------------------


def parameters_of(function: Any, what: str) -> list[inspect.Parameter]:
    """Returns the parameters of a pattern or a replacement."""
    if not callable(function) or isinstance(function, type | _keras.Operation):
        raise UsageTypeError(
            explain(
                f"`rewrite`: the {what} must be a function.",
                where=f"argument `{what}`",
                expected="a function of tensors and layers",
                received=f"{function!r} (of type {type(function).__name__})",
                fix="write for example `lambda x: keras.ops.relu(x)`",
            )
        )
    try:
        found = list(inspect.signature(function, eval_str=True).parameters.values())
    except Exception as error:  # An annotation may be any expression.
        raise refused(
            f"the parameters of the {what} cannot be read.",
            function,
            expected="annotations that are known where the function is defined",
            received=f"{type(error).__name__}: {error}",
            fix="give the class as a default instead: `conv=layers.Conv2D`",
        ) from error
    for parameter in found:
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise refused(
                f"the parameters of the {what} must have names.",
                function,
                expected="one parameter for each tensor and each layer",
                received=f"({', '.join(map(str, found))})",
                fix="write for example `(x, conv: layers.Conv2D)`",
            )
    return found


def _classes(annotation: Any) -> tuple[type, ...]:
    """Returns the classes of layers that an annotation means, if it means any."""
    if isinstance(annotation, types.UnionType) or (
        typing.get_origin(annotation) is typing.Union
    ):
        annotation = typing.get_args(annotation)
    if not isinstance(annotation, tuple):
        annotation = (annotation,)
    is_meant = [
        isinstance(x, type) and issubclass(x, _keras.Operation) for x in annotation
    ]
    return annotation if annotation and all(is_meant) else ()


def name_of(function: Any) -> str:
    """Returns how a function is called in messages."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def refused(
    what: str, function: Any, *, expected: str, received: str, fix: str
) -> UsageError:
    return UsageError(
        explain(
            f"`rewrite`: {what}",
            where=name_of(function),
            expected=expected,
            received=received,
            fix=fix,
        )
    )


def _is_tensor(x: Any) -> bool:
    return isinstance(x, _keras.KerasTensor)
