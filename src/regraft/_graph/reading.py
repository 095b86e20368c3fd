"""A model's graph as a value: read it, search it, print it.

A `Graph` describes the calls that a Functional or Sequential model makes, in an
order that works. It is frozen: nothing that is done to a graph touches the model it
was read from. Nested models are graphs inside, and layers that hold layers show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .. import _keras
from .._collector import without_collector
from .._errors import UsageError, UsageTypeError, did_you_mean, explain
from .._identity import address
from .._select import Selection, Where, select
from . import picture, text
from .inlining import End
from .node import Node, Ref, nodes_of
from .slots import slots_in
from .table import Table, read
from .verbs import Verbs


class Ends(tuple[Ref, ...]):
    """The inputs or outputs of a graph; called, it chooses others."""

    _choose: Any

    def __new__(cls, refs: Iterable[Ref], choose: Any) -> Ends:
        """Makes the tuple, and notes who chooses others."""
        self = super().__new__(cls, refs)
        self._choose = choose
        return self

    def __call__(self, *chosen: Any, **named: Any) -> Any:
        """Returns a graph with other inputs or outputs: see `Graph`."""
        return self._choose(*chosen, **named)


@dataclass(frozen=True)
class Graph(Verbs):
    """The calls of a model, as a value.

    `graph.inputs` and `graph.outputs` are tuples; called, they choose others:
    `graph.outputs("pool")` is the graph that ends there.

    Attributes:
        name: The name of the model.
        nodes: Its calls, each after those it depends on, inputs first.
        inputs: The inputs of the model, in their order.
        outputs: The outputs of the model, in their order.
        model: The model that was read.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: Ends
    outputs: Ends
    model: Any = field(compare=False, repr=False)
    _table: Table = field(compare=False, repr=False)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, path: object) -> bool:
        key = path.path if isinstance(path, Ref | Node) else path
        return key in self._first

    def __getitem__(self, path: str | Ref) -> Node:
        """Returns the node with a path, or the one that makes a tensor.

        Of a layer with several calls a path means the first.
        """
        if isinstance(path, Ref):
            found = self._by_call.get((path.path, path.call))
        else:
            found = self._first.get(path)
        if found is None:
            raise UsageError(
                explain(
                    f"There is no node {str(path)!r}.",
                    where=self.name,
                    expected="the path of a layer or operation, as `print(graph)` "
                    "shows it",
                    received=repr(path),
                    fix="look at `graph.find('*')`, or search with a pattern."
                    f"{did_you_mean(path, self._first)}",
                )
            )
        return found

    def walk(self) -> Iterator[Node]:
        """Yields all nodes, those inside others right after them."""
        for node in self.nodes:
            yield from node.walk()

    def find(self, where: Where) -> Selection:
        """Returns the nodes that a selector means, at any depth.

        Args:
            where: A path, a pattern (`"*/bn_*"`), a class, a function of a node, a
                node, a selection, or a tuple of these, of which any may hold.
        """
        return Selection(select(where, self.walk()), self.name, where)

    def lint(self) -> list[str]:
        """Returns what is wrong with the graph, one sentence each; mostly nothing."""
        problems = []
        seen: set[tuple[str, int]] = set()
        for node in self.nodes:
            key = (node.path, node.call)
            if key in seen:
                problems.append(f"{node.path} stands for two calls.")
            seen.add(key)
            problems += [
                f"{node.path} needs {source}, which is not made before it."
                for source in node.sources
                if (source.path, source.call) not in seen
            ]
        problems += [
            f"Output {i} is {ref}, which nothing makes."
            for i, ref in enumerate(self.outputs)
            if (ref.path, ref.call) not in seen
        ]
        return problems

    def _with(self, table: Table) -> Graph:
        return of_table(table)

    def _end(self, end: Any) -> Any:
        """Turns a path, a `Ref` or a node into the place and the output it means."""
        if isinstance(end, str):
            node = self[end]
        elif isinstance(end, Ref):
            return End(self[end].place, end.output)
        elif isinstance(end, Node):  # Perhaps of another graph of the model.
            node = self[Ref(end.path, end.call)]
        else:
            return end
        if len(node.outputs) != 1:
            raise UsageError(
                explain(
                    "It must be said which output of the layer is meant.",
                    where=node.path,
                    expected="a layer that returns one tensor, or a `Ref`",
                    received=f"a layer with {len(node.outputs)} known outputs",
                    fix=f"pass `regraft.Ref({node.path!r}, output=0)`",
                )
            )
        return End(node.place, 0)

    @cached_property
    def _first(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for node in self.walk():
            found.setdefault(node.path, node)
        return found

    @cached_property
    def _by_call(self) -> dict[tuple[str, int], Node]:
        return {(node.path, node.call): node for node in self.walk()}

    def __str__(self) -> str:
        return text.table(self)

    def _repr_svg_(self) -> str:
        """Draws the graph, where a notebook asks for it."""
        return picture.svg(self)


def graph(model: Any, at: str | None = None) -> Graph:
    """Reads the graph of a model.

    Args:
        model: A Functional or Sequential model, built; or any model or layer that
            holds one, with `at`.
        at: The path of the model inside `model` that is to be read: the names of
            layers, with slashes between.

    Returns:
        The graph, a frozen value.

    Raises:
        UsageError: The model has no graph, or there is none at that path.

    Example:
    >>> import keras, regraft
    >>> x = keras.Input((4,), name="x")
    >>> model = keras.Model(x, keras.layers.Dense(2, name="head")(x), name="net")
    >>> print(regraft.graph(model))
    net: 2 nodes, 10 parameters
    x     InputLayer  (None, 4)      0
    head  Dense       (None, 2)     10  <- x
    >>> regraft.graph(model)["head"].sources
    (Ref(path='x', call=0, output=0),)
    """
    if not isinstance(model, _keras.Layer):
        raise UsageTypeError(
            explain(
                "Only models have graphs.",
                where="argument `model`",
                expected="a Functional or Sequential `keras.Model`",
                received=f"{model!r} (of type {type(model).__name__})",
                fix="pass the model itself",
            )
        )
    found = model if at is None else _descend(model, at)
    inner = _keras.inner_graph(found)
    if inner is None:
        inside = [path for path, layer in _graph_models(model) if layer is not model]
        named = ", ".join(inside) or "none is inside it"
        raise UsageError(
            explain(
                "This model has no graph: its calls are Python code, or it is not "
                "built.",
                where=found.name if at is None else f"{model.name}, at {at!r}",
                expected="a Functional model, or a Sequential that is built",
                received=f"{type(found).__name__}; models with a graph: {named}",
                fix="build it, or name a model inside it with `at=`",
            )
        )
    with without_collector():
        return of_table(read(found))


def _descend(model: Any, path: str) -> Any:
    found = dict(_graph_models(model))
    if path not in found:
        raise UsageError(
            explain(
                f"There is no model with a graph at {path!r}.",
                where=model.name,
                expected=", ".join(found) or "a model that holds a Functional one",
                received=repr(path),
                fix=f"choose one of these.{did_you_mean(path, found)}",
            )
        )
    return found[path]


def _graph_models(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields the models with a graph below a layer, by path."""
    stack, seen = [("", model)], set()
    while stack:
        path, layer = stack.pop()
        if address(layer) in seen:
            continue
        seen.add(address(layer))
        if path and _keras.inner_graph(layer) is not None:
            yield path, layer
        for part in reversed(_keras.sublayers(layer)):
            stack.append((f"{path}/{part.name}" if path else part.name, part))


def of_table(table: Table) -> Graph:
    """Returns the graph that a table describes."""
    nodes, refs = nodes_of(table, table.root)
    part, scope = table[table.root], table.scope
    graph = Graph(
        name=part.name,
        nodes=nodes,
        inputs=Ends((refs[s] for s in slots_in(scope.inputs)), None),
        outputs=Ends((refs[s] for s in slots_in(scope.outputs)), None),
        model=part.operation,
        _table=table,
    )
    graph.inputs._choose, graph.outputs._choose = graph._inputs, graph._outputs
    return graph
