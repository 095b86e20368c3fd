"""The map of a graph, as Keras draws it, for graphs of any depth.

Keras maps a graph by a function that calls itself for each layer of a chain, and
compares each name with all others. What is found here is the same, in the same order.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

import keras
from keras.src.models.functional import Functional
from keras.src.ops import function as keras_function

from .._identity import address
from .graph import input_layer_of, node_key, place_of, producer

Map = tuple[dict[int, list[Any]], list[Any], dict[int, list[Any]]]


def map_graph(inputs: list[Any], outputs: list[Any]) -> tuple[set[str], *Map]:
    """Returns the keys of nodes, nodes by depth, operations, operations by depth."""
    nodes_by_depth, operations, by_depth = _lay_out(inputs, outputs)
    nodes = itertools.chain.from_iterable(nodes_by_depth.values())
    keys = {node_key(node, place_of(node) or 0) for node in nodes}
    return keys, nodes_by_depth, operations, by_depth


def _lay_out(inputs: list[Any], outputs: list[Any]) -> Map:
    """Returns the nodes by depth, operations, operations by depth."""
    order, seen, needs, is_loose = _in_order(inputs, outputs)
    depths: dict[int, int] = {}
    nodes: dict[int, Any] = {}
    heights: dict[Any, int] = {}
    for node in reversed(order):
        operation = node.operation
        depth = max(depths.get(address(node), 0), heights.get(operation, 0))
        depths[address(node)] = heights[operation] = depth
        nodes[address(node)] = node
        for before in needs[address(node)]:
            key = address(before)
            if key in needs and depths.get(key, -1) <= depth:
                depths[key] = depth + 1
                nodes[key] = before
    for tensor in inputs:  # Those that no output needs.
        node = producer(tensor)
        if node is not None and node.operation not in heights and node.is_input:
            heights[node.operation], seen[node.operation] = 0, -1
            depths[address(node)], nodes[address(node)] = 0, node
    nodes_by_depth: dict[int, list[Any]] = collections.defaultdict(list)
    for i, node in nodes.items():
        nodes_by_depth[depths[i]].append(node)
    by_depth: dict[int, list[Any]] = collections.defaultdict(list)
    for operation, depth in heights.items():
        by_depth[depth].append(operation)
    operations = []
    for depth in sorted(by_depth, reverse=True):
        beside = by_depth[depth]
        if len(beside) > 1:
            beside.sort(key=seen.__getitem__)
        operations += beside
    if is_loose:
        _refuse_loose_end(inputs, nodes_by_depth)
    _refuse_equal_names(operations)
    return nodes_by_depth, operations, by_depth


def _in_order(
    inputs: list[Any], outputs: list[Any]
) -> tuple[list[Any], dict[Any, int], dict[int, list[Any]], bool]:
    """Returns nodes, each after those it needs.

    With them comes when each operation was seen; by the id of a node, the nodes that it
    needs; and whether a tensor may come from nowhere.
    """
    given = {address(tensor) for tensor in inputs}
    done: set[int] = set()
    order: list[Any] = []
    seen: dict[Any, int] = {}
    needs: dict[int, list[Any]] = {}
    is_loose = False
    for output in outputs:
        stack = [(output, producer(output))]
        while stack:
            tensor, node = stack[-1]
            key = address(node)
            if key in needs and key not in done:  # All that it needs is there.
                done.add(key)
                order.append(node)
                stack.pop()
            elif node is None or key in done:
                was_made = key in needs
                is_loose = is_loose or not (was_made or address(tensor) in given)
                stack.pop()
            elif node.is_input:
                seen.setdefault(node.operation, len(seen))
                needs[key] = []
            elif address(tensor) in given:
                done.add(key)
                stack.pop()
            else:
                seen.setdefault(node.operation, len(seen))
                tensors = node.input_tensors
                before = needs[key] = [*map(producer, tensors)]
                if len(tensors) == 1:
                    stack.append((tensors[0], before[0]))
                else:
                    stack += zip(reversed(tensors), reversed(before), strict=True)
    return order, seen, needs, is_loose


def _refuse_loose_end(inputs: list[Any], nodes_by_depth: dict[int, list[Any]]) -> None:
    known = {address(tensor) for tensor in inputs}
    for depth in sorted(nodes_by_depth, reverse=True):
        for node in nodes_by_depth[depth]:
            for tensor in node.input_tensors:
                if address(tensor) not in known:
                    raise ValueError(
                        f"Graph disconnected: cannot find parent for tensor {tensor} "
                        f"at operation '{node.operation}'."
                    )
            known.update(map(address, node.outputs))


def _refuse_equal_names(operations: list[Any]) -> None:
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
        found = _lay_out(self._inputs, self._outputs)
        self._nodes_by_depth, self._operations, self._operations_by_depth = found
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
