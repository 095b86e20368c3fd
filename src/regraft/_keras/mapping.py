"""The map of a graph, as Keras draws it, for graphs of any depth.

Keras maps a graph by a function that calls itself for each layer of a chain, and
compares each name with all others. What is found here is the same, in the same order.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.models.functional import Functional
from keras.src.ops import function as keras_function

from .graph import input_layer_of, node_key, producer

Map = tuple[set[str], dict[int, list[Any]], list[Any], dict[int, list[Any]]]


def map_graph(inputs: list[Any], outputs: list[Any]) -> Map:
    """Returns the keys of nodes, nodes by depth, operations, operations by depth."""
    order, seen = _in_order(inputs, outputs)
    known = {id(node) for node in order}
    depths: dict[int, int] = {}
    nodes: dict[int, Any] = {}
    heights: dict[Any, int] = {}
    for node in reversed(order):
        depth = max(depths.get(id(node), 0), heights.get(node.operation, 0))
        depths[id(node)] = heights[node.operation] = depth
        nodes.setdefault(id(node), node)
        for before in map(producer, node.input_tensors):
            if id(before) in known:
                depths[id(before)] = max(depth + 1, depths.get(id(before), 0))
                nodes.setdefault(id(before), before)
    for tensor in inputs:  # Those that no output needs.
        node = producer(tensor)
        if node is not None and node.operation not in heights and node.is_input:
            heights[node.operation], seen[node.operation] = 0, -1
            depths[id(node)], nodes[id(node)] = 0, node
    nodes_by_depth: dict[int, list[Any]] = collections.defaultdict(list)
    for i, node in nodes.items():
        nodes_by_depth[depths[i]].append(node)
    by_depth: dict[int, list[Any]] = collections.defaultdict(list)
    for operation, depth in heights.items():
        by_depth[depth].append(operation)
    operations = []
    for depth in sorted(by_depth, reverse=True):
        by_depth[depth].sort(key=lambda operation: seen[operation])
        operations += by_depth[depth]
    _check(inputs, nodes_by_depth, operations)
    return set(_keys(nodes.values())), nodes_by_depth, operations, by_depth


def _in_order(
    inputs: list[Any], outputs: list[Any]
) -> tuple[list[Any], dict[Any, int]]:
    """Returns the nodes, each after what it needs, and when operations were seen."""
    given = {id(tensor) for tensor in inputs}
    done: set[int] = set()
    waiting: set[int] = set()
    order: list[Any] = []
    seen: dict[Any, int] = {}
    for output in outputs:
        stack = [(output, producer(output))]
        while stack:
            tensor, node = stack[-1]
            if node is None or id(node) in done:
                stack.pop()
            elif id(node) in waiting:
                waiting.remove(id(node))
                done.add(id(node))
                order.append(node)
                stack.pop()
            elif not node.is_input and id(tensor) in given:
                done.add(id(node))
                stack.pop()
            else:
                waiting.add(id(node))
                seen.setdefault(node.operation, len(seen))
                needs = [] if node.is_input else node.input_tensors
                stack += [(x, producer(x)) for x in reversed(needs)]
    return order, seen


def _keys(nodes: Any) -> Iterator[str]:
    for node in nodes:
        listed = node.operation._inbound_nodes
        index = node.outputs[0]._keras_history.node_index if node.outputs else 0
        if index >= len(listed) or listed[index] is not node:
            index = listed.index(node)
        yield node_key(node, index)


def _check(
    inputs: list[Any], nodes_by_depth: dict[int, list[Any]], operations: list[Any]
) -> None:
    known = {id(tensor) for tensor in inputs}
    for depth in sorted(nodes_by_depth, reverse=True):
        for node in nodes_by_depth[depth]:
            for tensor in node.input_tensors:
                if id(tensor) not in known:
                    raise ValueError(
                        f"Graph disconnected: cannot find parent for tensor {tensor} "
                        f"at operation '{node.operation}'."
                    )
            known.update(map(id, node.outputs))
    counts = collections.Counter(operation.name for operation in operations)
    for name, count in counts.items():
        if count > 1:
            raise ValueError(
                f'The name "{name}" is used {count} times in the model. All operation '
                "names should be unique."
            )


class MappedGraph:
    """What a Functional model keeps about its graph, without a model around it."""

    def __init__(self, inputs: Any, outputs: Any) -> None:
        self._inputs_struct = keras.tree.map_structure(lambda x: x, inputs)
        self._outputs_struct = keras.tree.map_structure(lambda x: x, outputs)
        self._inputs = keras.tree.flatten(inputs)
        self._outputs = keras.tree.flatten(outputs)
        found = map_graph(self._inputs, self._outputs)
        self._nodes, self._nodes_by_depth = found[:2]
        self._operations, self._operations_by_depth = found[2:]
        self.output_names = [producer(x).operation.name for x in self._outputs]


def has_plain_inputs(inputs: Any) -> bool:
    """Tells whether a graph begins with inputs, and not inside another graph."""
    return all(input_layer_of(x) is not None for x in keras.tree.flatten(inputs))


def functional(inputs: Any, outputs: Any, name: str) -> Any:
    """Makes a Functional model of a graph, which may be as deep as it wants."""
    before = keras_function.map_graph
    keras_function.map_graph = map_graph
    try:
        return Functional(inputs, outputs, name=name)
    finally:
        keras_function.map_graph = before
