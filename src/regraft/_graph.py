"""A model's graph as a value: read it, search it, print it.

A `Graph` describes the calls that a Functional or Sequential model makes, in an
order that works. It is frozen: nothing that is done to a graph touches the model it
was read from. Nested models are graphs inside, and layers that hold layers show them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import keras

from . import _graph_text, _keras, _picture
from ._errors import UsageError, UsageTypeError, did_you_mean, explain
from ._select import Selection, Where, select


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
        layer: The layer or operation itself.
        call: Which of the layer's calls in this graph this is, counted from 0.
        calls: How often the layer is called in this graph.
        outputs: The tensors that the call returns. A layer that is only held by
            another one has none that is known.
        sources: Where the tensors come from that it is called with.
        consumers: The calls that one of its outputs goes to.
        inside: The nodes of a nested model, or the layers that a layer holds.
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
    arguments: Any = field(default=None, compare=False, repr=False)

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
        return _graph_text.line(self)


@dataclass(frozen=True)
class Graph:
    """The calls of a model, as a value.

    Attributes:
        name: The name of the model.
        nodes: Its calls, each after those it depends on, inputs first.
        inputs: The inputs of the model, in their order.
        outputs: The outputs of the model, in their order.
        model: The model that was read.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    model: Any = field(compare=False, repr=False)

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
        return _graph_text.table(self)

    def _repr_svg_(self) -> str:
        """Draws the graph, where a notebook asks for it."""
        return _picture.svg(self)


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
    return _read(found, inner)


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
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        if path and _keras.inner_graph(layer) is not None:
            yield path, layer
        for part in reversed(_keras.sublayers(layer)):
            stack.append((f"{path}/{part.name}" if path else part.name, part))


def _read(model: Any, inner: Any) -> Graph:
    nodes = _nodes(inner, "")
    made = {id(t): ref for _, ref, t in _tensors(inner, "")}
    return Graph(
        name=model.name,
        nodes=nodes,
        inputs=tuple(made[id(t)] for t in inner.inputs),
        outputs=tuple(made[id(t)] for t in inner.outputs),
        model=model,
    )


def _tensors(inner: Any, prefix: str) -> Iterator[tuple[Any, Ref, Any]]:
    """Yields each call of a graph with the tensors it makes, and their names."""
    counts: dict[int, int] = {}
    for call in _keras.call_order(inner):
        number = counts.get(id(call.operation), 0)
        counts[id(call.operation)] = number + 1
        path = prefix + call.operation.name
        for i, tensor in enumerate(call.outputs):
            yield call, Ref(path, number, i), tensor


def _nodes(inner: Any, prefix: str) -> tuple[Node, ...]:
    tensors = list(_tensors(inner, prefix))
    refs = {id(tensor): ref for _, ref, tensor in tensors}
    calls = {id(call): (call, ref.path, ref.call) for call, ref, _ in tensors}
    total: dict[str, int] = {}
    consumers: dict[Ref, list[Ref]] = {}
    sources: dict[int, tuple[Ref, ...]] = {}
    for key, (call, path, number) in calls.items():
        total[path] = number + 1
        found = [] if call.is_input else _keras.argument_tensors(call)
        sources[key] = tuple(refs[id(t)] for t in found if id(t) in refs)
        for ref in sources[key]:
            made_by = Ref(ref.path, ref.call)
            consumers.setdefault(made_by, []).append(Ref(path, number))
    nodes = []
    for key, (call, path, number) in calls.items():
        layer = call.operation
        used_by = consumers.get(Ref(path, number), [])
        nodes.append(
            Node(
                path=path,
                layer=layer,
                call=number,
                calls=total[path],
                outputs=tuple(map(_output, call.outputs)),
                sources=sources[key],
                consumers=tuple(dict.fromkeys(used_by)),
                inside=_inside(layer, path) if isinstance(layer, _keras.Layer) else (),
                arguments=None if call.is_input else _arguments(call, refs),
            )
        )
    return tuple(nodes)


def _arguments(call: Any, refs: dict[int, Ref]) -> Any:
    return keras.tree.map_structure(
        lambda x: refs.get(id(x), x), _keras.call_arguments(call)
    )


def _output(tensor: Any) -> Output:
    return Output(tensor.shape, tensor.dtype, _keras.mask_of(tensor) is not None)


def _inside(layer: Any, path: str, above: tuple[Any, ...] = ()) -> tuple[Node, ...]:
    inner = _keras.inner_graph(layer)
    if inner is not None:
        return _nodes(inner, f"{path}/")
    above = (*above, layer)
    parts = [part for part in _keras.sublayers(layer) if part not in above]
    return tuple(
        Node(
            f"{path}/{part.name}",
            part,
            inside=_inside(part, f"{path}/{part.name}", above),
        )
        for part in parts
    )
