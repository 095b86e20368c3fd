"""The calls of a graph, as somebody wrote them: in order, with their arguments."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable
from typing import Any

from keras.src.backend.common.masking import get_keras_mask
from keras.src.layers.layer import Layer

from .._identity import address
from .classes import KerasTensor
from .graph import NODE_LISTS, own_nodes, producer
from .trees import leaves


def added_arguments(node: Any) -> set[str]:
    """Returns the arguments of a call that its layer added by itself.

    A layer looks for the masks of its inputs and for the default of `training`,
    and may note them in the node as if they had been passed (in Keras, steps 5
    and 6 of `Layer.__call__`; a call with one tensor and nothing else does).
    """
    layer = node.operation
    if not isinstance(layer, Layer):
        return set()
    args, kwargs = node.arguments.args, node.arguments.kwargs
    parameters = layer._call_signature.parameters
    bound = {**dict(zip(parameters, args, strict=False)), **kwargs}
    added = set()
    for name, value in kwargs.items():
        others = {k: v for k, v in bound.items() if k != name and has_tensors(v)}
        if name == "mask" and len(others) == 1:
            [source] = others.values()
        elif name.removesuffix("_mask") in others:
            source = others[name.removesuffix("_mask")]
        else:
            continue
        masks = [get_keras_mask(x) for x in leaves(source)]
        passed = leaves(value)
        if [address(mask) for mask in masks] == [address(mask) for mask in passed]:
            added.add(name)
    if len(args) == 1 and ("mask" in added or "mask" not in parameters):
        for name in layer._call_context_args & kwargs.keys():
            if name in parameters and kwargs[name] is parameters[name].default:
                added.add(name)
    return added


def has_tensors(value: Any) -> bool:
    """Tells whether an argument of a call holds symbolic tensors."""
    return any(isinstance(x, KerasTensor) for x in leaves(value))


def tensors_in(struct: Any) -> list[Any]:
    """Returns the symbolic tensors in a structure."""
    return [x for x in leaves(struct) if isinstance(x, KerasTensor)]


def call_arguments(node: Any) -> tuple[Any, dict[str, Any]]:
    """Returns what a node's operation was called with, and nothing it added."""
    args, kwargs = node.arguments.args, node.arguments.kwargs
    added = added_arguments(node)
    return args, {k: v for k, v in kwargs.items() if k not in added}


def argument_tensors(node: Any) -> list[Any]:
    """Returns the symbolic tensors that a node's operation was called with."""
    return tensors_in(call_arguments(node))


def takes_training(layer: Any) -> bool:
    """Tells whether a layer may be told, when it is called, that it is trained."""
    if not isinstance(layer, Layer):
        return False
    parameters = inspect.signature(type(layer).__call__).parameters.values()
    return any(p.name == "training" or p.kind is p.VAR_KEYWORD for p in parameters)


def call_order(graph: Any) -> list[Any]:
    """Returns the calls that make a graph's outputs, in an order that works.

    A node comes after those that its arguments come from and after the earlier
    calls of the same operation, as when the graph was first made. Operations
    that only compute masks for layers to find are left out.
    """
    mine = {address(node): node for node in own_nodes(graph)}
    before: dict[int, Any] = {}
    for operation in graph.operations:
        calls = [node for node in operation._inbound_nodes if address(node) in mine]
        before.update({address(b): a for a, b in itertools.pairwise(calls)})
    order: dict[int, Any] = {}
    starts = [node for node in mine.values() if node.is_input]
    for start in [*starts, *map(producer, graph._outputs)]:
        stack = [start] if address(start) in mine else []
        while stack:
            node = stack[-1]
            needs = [producer(x) for x in argument_tensors(node)]
            needs.append(before.get(address(node)))
            needs = [n for n in needs if address(n) in mine and address(n) not in order]
            if needs:
                stack.extend(reversed(needs))
            else:
                order[address(node)] = node
                stack.pop()
    return list(order.values())


def calls_behind(outputs: list[Any], given: set[int]) -> list[Any]:
    """Returns the calls that made tensors of others, in an order that works.

    Args:
        outputs: What was made.
        given: The ids of the tensors that it was made of.
    """
    order: dict[int, Any] = {}
    for output in outputs:
        start = None if address(output) in given else producer(output)
        stack = [] if start is None else [start]
        while stack:
            node = stack[-1]
            tensors = [x for x in argument_tensors(node) if address(x) not in given]
            needs = [producer(x) for x in tensors]
            needs = [n for n in needs if n is not None and address(n) not in order]
            if needs:
                stack.extend(reversed(needs))
            else:
                order[address(node)] = node
                stack.pop()
    return list(order.values())


class unnoted_calls:
    """A context after which operations do not know of the calls made in it.

    The caller lists the operations on the list that it is given.
    """

    def __enter__(self) -> list[Any]:
        self._operations: list[Any] = []
        return self._operations

    def __exit__(self, *_: object) -> None:
        for operation in self._operations:
            inbound = operation._inbound_nodes
            known = [n for n in inbound if not _is_from_nowhere(n)]
            if len(known) != len(inbound):
                inbound[:] = known


class calls_forgotten:
    """A context after which operations know of no more calls than before it."""

    def __init__(self, operations: Iterable[Any]) -> None:
        lists = (getattr(x, name, None) for x in operations for name in NODE_LISTS)
        self._lists = [nodes for nodes in lists if nodes is not None]

    def __enter__(self) -> None:
        self._known = [len(nodes) for nodes in self._lists]

    def __exit__(self, *_: object) -> None:
        for nodes, known in zip(self._lists, self._known, strict=True):
            del nodes[known:]


def _is_from_nowhere(node: Any) -> bool:
    """Tells whether a call goes back to tensors that belong to no graph."""
    stack, seen = [node], set()
    while stack:
        current = stack.pop()
        if address(current) in seen:
            continue
        seen.add(address(current))
        for tensor in current.input_tensors:
            before = producer(tensor)
            if before is None:
                return True
            stack.append(before)
    return False


def call_chain(graph: Any) -> list[Any] | None:
    """Returns the layers of a graph that is a mere sequence of them, or None."""
    operations, last = [], None
    for node in call_order(graph):
        args, kwargs = call_arguments(node)
        is_plain = len(args) == 1 and not kwargs
        if last is not None and not (is_plain and args[0] is last):
            return None
        if not isinstance(node.operation, Layer) or len(node.outputs) != 1:
            return None
        operations.append(node.operation)
        last = node.outputs[0]
    is_whole = len(graph._outputs) == 1 and graph._outputs[0] is last
    return operations if is_whole and len(graph._inputs) == 1 else None
