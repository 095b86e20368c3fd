"""Follows deleted channels through a model, and back where they must match."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import layers

from ... import _keras
from ..._errors import UsageError, explain
from ..._graph import Graph, Node, Ref, graph
from .cut import Cut, Kept, Step, Unequal
from .table import makes_channels, passes_channels, rule_of


@dataclass(frozen=True)
class Frame:
    """A model that is being followed, and the call of it that led there."""

    graph: Graph
    prefix: str = ""
    outer: Frame | None = None
    node: Node | None = None

    def inside(self, node: Node) -> Frame:
        """Returns the frame of a model inside."""
        return Frame(graph(node.layer), f"{self.prefix}{node.path}/", self, node)

    def path(self, node: Node) -> str:
        """Returns the path of a node from the outermost model."""
        return f"{self.prefix}{node.path}"


class Clash(Exception):
    """Channels of other layers must be deleted, too.

    Attributes:
        where: The path of the layer that needs it.
        makers: The layers that make these channels, with their paths.
    """

    def __init__(self, where: str, makers: list[tuple[Any, str, Kept]]) -> None:
        super().__init__()
        self.where = where
        self.makers = makers


@dataclass
class Flow:
    """Follows cuts once.

    Attributes:
        chosen: For the ids of layers, which of their channels stay.
        made: For the ids of layers, what makes those that take their places.
        met: The ids of the layers that were called.
    """

    chosen: dict[int, Kept]
    made: dict[int, Callable[[], Any]] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)
    _calls: dict[int, tuple[Any, str]] = field(default_factory=dict)

    def run(self, frame: Frame, given: tuple[Cut | None, ...]) -> list[Cut | None]:
        """Returns what is deleted of the outputs of a model."""
        part = frame.graph
        cuts: dict[Ref, Cut | None] = dict(zip(part.inputs, given, strict=True))
        for node in part:
            if node.is_input:
                continue
            incoming = tuple(cuts.get(ref) for ref in node.sources)
            self._check_shared(frame, node, incoming)
            if _keras.inner_graph(node.layer) is not None:
                found = self.run(frame.inside(node), incoming)
            else:
                found = [self._one(frame, node, incoming)]
            for i, cut in enumerate(found):
                cuts[Ref(node.path, node.call, i)] = cut
        return [cuts.get(ref) for ref in part.outputs]

    def _one(
        self, frame: Frame, node: Node, given: tuple[Cut | None, ...]
    ) -> Cut | None:
        layer = node.layer
        inner = layer.layer if isinstance(layer, layers.TimeDistributed) else None
        chosen = self.chosen.get(id(layer)) or self.chosen.get(id(inner))
        self.met |= {id(layer), id(inner)}
        if chosen is None and not any(given):
            return None
        shapes = tuple(
            tuple(frame.graph[ref].outputs[ref.output].shape or ())
            for ref in node.sources
        )
        rest = keras.tree.flatten(node.arguments)
        step = Step(
            layer,
            frame.path(node),
            given,
            shapes,
            tuple(node.outputs[0].shape or ()),
            chosen,
            tuple(x for x in rest if not isinstance(x, Ref) and x is not None),
        )
        rule = rule_of(layer)
        if rule is None:
            raise step.refusal("what it does with channels is not known")
        try:
            cut, make = rule(step)
        except Unequal as unequal:
            makers = [
                maker
                for i in unequal.sources
                for maker in trace(frame, node.sources[i], unequal.kept, step)
            ]
            raise Clash(step.path, makers) from None
        if make is not None:
            self.made[id(layer)] = make
        return None if cut is None or all(cut.kept) else cut

    def _check_shared(self, frame: Frame, node: Node, given: Any) -> None:
        """All calls of a layer have one layer: they must lose the same channels."""
        before, where = self._calls.setdefault(
            id(node.layer), (given, frame.path(node))
        )
        if before == given or not _depends(node.layer):
            return
        raise UsageError(
            explain(
                "`prune_channels`: a layer that is called more than once would lose "
                "different channels.",
                where=f"{where} and {frame.path(node)} (call {node.call})",
                expected="calls that are given tensors with the same channels deleted",
                received=", ".join(map(_said, (before, given))),
                fix="delete the same channels of all that it is called with",
            )
        )


def _depends(layer: Any) -> bool:
    """Tells whether what a layer is depends on what it is given."""
    return bool(getattr(layer, "weights", ())) or isinstance(layer, layers.Reshape)


def _said(given: tuple[Cut | None, ...]) -> str:
    lost = [0 if cut is None else cut.kept.count(False) for cut in given]
    return f"{' and '.join(map(str, lost))} channel(s) fewer"


def trace(
    frame: Frame, ref: Ref, kept: Kept, step: Step
) -> Iterator[tuple[Any, str, Kept]]:
    """Yields the layers that make the channels of a tensor."""
    node = frame.graph[ref]
    layer = node.layer
    if node.is_input:
        if frame.outer is None or frame.node is None:
            raise step.refusal("it gets channels of an input of the model")
        source = frame.node.sources[frame.graph.inputs.index(ref)]
        yield from trace(frame.outer, source, kept, step)
    elif _keras.inner_graph(layer) is not None:
        inside = frame.inside(node)
        yield from trace(inside, inside.graph.outputs[ref.output], kept, step)
    elif makes_channels(layer):
        yield layer, frame.path(node), kept
    elif isinstance(layer, layers.Concatenate):
        start = 0
        for source in node.sources:
            shape = frame.graph[source].outputs[source.output].shape or ()
            size = shape[layer.axis]
            mine = kept[start : start + size]
            start += size
            if not all(mine):
                yield from trace(frame, source, mine, step)
    elif passes_channels(layer) and getattr(layer, "depth_multiplier", 1) == 1:
        for source in node.sources:
            yield from trace(frame, source, kept, step)
    else:
        raise step.refusal(
            f"channels of {frame.path(node)} must be deleted with them, and what "
            f"{type(layer).__name__} does with channels is not known"
        )
