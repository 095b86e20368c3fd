"""Nodes of a graph: what one sees of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import _keras
from . import text
from .slots import Slot, put
from .splice import Place
from .table import Table


@dataclass(frozen=True, order=True)
class Ref:
    """One output of one call.

    Attributes:
        path: The path of the layer that is called.
        call: Which of its calls, counted from 0.
        output: Which of the outputs of that call.
    """

    path: str
    call: int = 0
    output: int = 0

    def __str__(self) -> str:
        call = f"#{self.call}" if self.call else ""
        output = f"[{self.output}]" if self.output else ""
        return f"{self.path}{call}{output}"


@dataclass(frozen=True)
class Output:
    """What a call returns: one tensor of it."""

    shape: tuple[int | None, ...] | None
    dtype: str
    is_masked: bool


@dataclass(frozen=True)
class Node:
    """One call of a layer or operation, or a layer inside another one.

    Attributes:
        path: Names from the outermost model down, with slashes between.
        layer: The layer or operation itself, as it was before it was edited.
        call: Which of the layer's calls in this graph this is, counted from 0.
        calls: How often the layer is called in this graph.
        outputs: The tensors that the call returns. A layer that is only held by
            another one has none that is known.
        sources: Where the tensors come from that it is called with.
        consumers: The calls that one of its outputs goes to.
        inside: The nodes of a nested model, or the layers that a layer holds.
        changes: The attributes that an edit sets, with their values as text.
        arguments: All it is called with, `Ref`s in place of tensors.
    """

    path: str
    layer: Any
    call: int = 0
    calls: int = 1
    outputs: tuple[Output, ...] = ()
    sources: tuple[Ref, ...] = ()
    consumers: tuple[Ref, ...] = ()
    inside: tuple[Node, ...] = ()
    changes: tuple[tuple[str, str], ...] = ()
    arguments: Any = field(default=None, compare=False, repr=False)
    place: Any = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the layer, which is the end of its path."""
        return self.path.rpartition("/")[2]

    @property
    def kind(self) -> type:
        """The class of the layer."""
        return type(self.layer)

    @property
    def is_input(self) -> bool:
        """Whether this is an input of its graph."""
        return isinstance(self.layer, _keras.InputLayer)

    @property
    def is_shared(self) -> bool:
        """Whether the layer is called more than once in its graph."""
        return self.calls > 1

    @property
    def parameters(self) -> int:
        """How many numbers the layer has learned or keeps."""
        return _keras.count_parameters(self.layer)

    def walk(self) -> Iterator[Node]:
        """Yields the node and all nodes inside it."""
        yield self
        for node in self.inside:
            yield from node.walk()

    def __str__(self) -> str:
        return text.line(self)


def nodes_of(
    table: Table, key: int, prefix: str = ""
) -> tuple[tuple[Node, ...], dict[Slot, Ref]]:
    """Returns the nodes of a model in a table, and the names of its tensors."""
    scope = table.scope_of(key)
    counts: dict[int, int] = {}
    refs: dict[Slot, Ref] = {}
    places: dict[int, Place] = {}
    for call in scope.calls:
        index = counts.get(call.part, 0)
        counts[call.part] = index + 1
        path = prefix + table[call.part].name
        places[call.number] = Place(call.part, path, key, call.number, index)
        for i, slot in enumerate(call.results):
            refs[slot] = Ref(path, index, i)
    consumers: dict[int, list[Ref]] = {}
    for call in scope.calls:
        here = places[call.number]
        for slot in call.slots:
            consumers.setdefault(slot.call, []).append(Ref(here.path, here.index))
    nodes = []
    for call in scope.calls:
        place, part = places[call.number], table[call.part]
        is_input = isinstance(part.operation, _keras.InputLayer)
        nodes.append(
            Node(
                path=place.path,
                layer=part.operation,
                call=place.index,
                calls=counts[call.part],
                outputs=tuple(map(_output, call.outputs)),
                sources=tuple(refs[slot] for slot in call.slots),
                consumers=tuple(dict.fromkeys(consumers.get(call.number, []))),
                inside=_inside(table, call.part, place.path),
                changes=_changes(part),
                arguments=None if is_input else put(call.arguments, refs),
                place=place,
            )
        )
    return tuple(nodes), refs


def _output(tensor: Any) -> Output:
    return Output(tensor.shape, tensor.dtype, _keras.mask_of(tensor) is not None)


def _changes(part: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(value)) for name, value in part.changes.items())


def _inside(
    table: Table, key: int, path: str, above: tuple[int, ...] = ()
) -> tuple[Node, ...]:
    part = table[key]
    if part.scope is not None:
        return nodes_of(table, key, f"{path}/")[0]
    above = (*above, key)
    found = []
    for inner in part.held:
        if inner in above:
            continue
        held = table[inner]
        there = f"{path}/{held.name}"
        found.append(
            Node(
                there,
                held.operation,
                inside=_inside(table, inner, there, above),
                changes=_changes(held),
                place=Place(inner, there, holder=key),
            )
        )
    return tuple(found)
