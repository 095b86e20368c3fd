"""Call nodes and symbolic tensors: what made what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from keras.src.ops.function import Function
from keras.src.ops.node import KerasHistory

from .. import _backends
from .._core import fill_owned
from .._identity import address
from .classes import InputLayer

# Lists of call nodes. They also name calls made by other models, so a copy
# never follows them: it receives the nodes that were reached another way.
NODE_LISTS = ("_inbound_nodes", "_outbound_nodes")

# What a graph has at each depth.
GRAPH_INDICES = ("_nodes_by_depth", "_operations_by_depth")


def history(tensor: Any) -> Any:
    """Returns `(operation, node_index, tensor_index)` of a symbolic tensor."""
    return getattr(tensor, "_keras_history", None)


def producer(tensor: Any) -> Any:
    """Returns the node that produced a symbolic tensor, if it is known."""
    made_by = history(tensor)
    return None if made_by is None else node_of(made_by)


def node_of(made_by: Any) -> Any:
    """Returns the node of which a symbolic tensor says that it produced it."""
    operation, index, _ = made_by
    if operation is None:
        return None
    nodes = operation._inbound_nodes
    return nodes[index] if index < len(nodes) else None


def own_nodes(function: Any) -> Iterator[Any]:
    """Yields the call nodes of a `Function` or Functional model, inputs first."""
    by_depth = function._nodes_by_depth
    for depth in sorted(by_depth, reverse=True):
        yield from by_depth[depth]


def copy_node(node: Any, new: Any, walk: Any) -> None:
    """Gives a call node the copies of its operation, arguments and outputs."""
    fill_owned(walk, node, new, "arguments")


def copy_graph_index(index: Any, memo: dict[int, Any], copy_of: Any) -> Any:
    """Returns the copy of a dict that lists what a graph has at each depth.

    The walk could copy it as it copies any dict of lists; these have as many lists as
    a chain has layers. None where it is not as Keras makes it.
    """
    if type(index) not in (dict, defaultdict):
        return None
    if not all(type(k) is int and type(v) is list for k, v in index.items()):
        return None
    if getattr(index, "default_factory", None) not in (None, list):
        return None
    new = index.copy()
    for depth, items in index.items():
        if address(items) in memo:
            new[depth] = memo[address(items)]
        else:
            new[depth] = memo[address(items)] = [*map(copy_of, items)]
    return new


def append_call(node: Any) -> int:
    """Lists a call on the operation that was called, and returns its number."""
    nodes = node.operation._inbound_nodes
    nodes.append(node)
    return len(nodes) - 1


def is_graph(obj: Any) -> bool:
    """Tells whether an object owns a graph of call nodes."""
    return isinstance(obj, Function) and "_nodes_by_depth" in vars(obj)


def node_key(node: Any, index: int) -> str:
    """Returns the key under which a `Function` lists one of its nodes."""
    return f"{id(node.operation)}_ib-{index}"


def inner_graph(model: Any) -> Any:
    """Returns the Functional behind a model (itself, a Sequential's), or None."""
    if is_graph(model):
        return model
    inner = getattr(model, "_functional", None)  # On torch not in `vars(model)`.
    return inner if inner is not None and is_graph(inner) else None


def set_history(new: Any, tensor: Any, node: Any, index: int) -> None:
    """Says which call of which operation produced a copied tensor."""
    position = tensor._keras_history.tensor_index
    operation = None if node is None else node.operation
    if operation is None:
        index, position = 0, 0  # As Keras marks a tensor from outside a graph.
    vars(new)["_keras_history"] = KerasHistory(operation, index, position)


def set_node_keys(graph: Any, index: dict[int, int]) -> None:
    """Writes the keys under which a graph lists its nodes."""
    keys = {node_key(node, index[address(node)]) for node in own_nodes(graph)}
    vars(graph)["_nodes"] = keys


def knows_its_nodes(graph: Any) -> bool:
    """Tells whether a graph lists its nodes by the numbers of their calls."""
    nodes = list(own_nodes(graph))
    called = {address(node.operation): node.operation for node in nodes}.values()
    index = {
        address(node): i
        for operation in called
        for i, node in enumerate(operation._inbound_nodes)
    }
    keys = {node_key(node, index.get(address(node), -1)) for node in nodes}
    return bool(keys == set(vars(graph)["_nodes"]))


def tensor_state(tensor: Any) -> tuple[dict[str, Any], Any]:
    """Returns a symbolic tensor's attributes without its history, and that."""
    state = vars(tensor).copy()
    return state, state.pop("_keras_history", None)


def foreign_inputs(graph: Any) -> list[Any]:
    """Returns the inputs of a graph that are made in another one.

    An `InputLayer` that was given the tensor of one, `keras.Input(tensor=x)`, says that
    it made it. There is no other graph behind it.
    """
    own = {address(node) for node in own_nodes(graph)}
    made = ((tensor, producer(tensor)) for tensor in graph._inputs)
    return [t for t, node in made if address(node) not in own and not is_input(node)]


def is_input(node: Any) -> bool:
    """Tells whether a node, if there is one, is where a graph begins."""
    return node is not None and bool(node.is_input)


def operations_behind(tensors: Iterable[Any], until: Iterable[Any] = ()) -> list[Any]:
    """Returns the operations that symbolic tensors come from, each once.

    Args:
        tensors: The tensors.
        until: Nodes from which it goes no further, themselves not included.
    """
    found: dict[int, Any] = {}
    seen = set(map(address, until))
    stack = [producer(tensor) for tensor in tensors]
    while stack:
        node = stack.pop()
        if node is not None and address(node) not in seen:
            seen.add(address(node))
            found[address(node.operation)] = node.operation
            stack += map(producer, node.input_tensors)
    return list(found.values())


def input_layer_of(tensor: Any) -> Any:
    """Returns the `InputLayer` that a symbolic tensor stands for, or None."""
    node = producer(tensor)
    found = None if node is None else node.operation
    return found if isinstance(found, InputLayer) else None


def graph_fields(graph: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """Yields what a graph is stored in, next to the same of another graph."""
    for name in (
        "_inputs",
        "_outputs",
        "_inputs_struct",
        "_outputs_struct",
        "_nodes_by_depth",
        "_operations",
        "_operations_by_depth",
    ):
        before, after = vars(graph)[name], vars(new)[name]
        are_lists = isinstance(before, list) and isinstance(after, list)
        if are_lists and type(before) is not type(after):
            after = _backends.active().list_like(before, after)
        yield before, after


def adopt_nodes(graph: Any) -> None:
    """Lets operations that a copied graph did not bring along list its nodes."""
    keys = set()
    for node in own_nodes(graph):
        place = place_of(node)
        if place is None:
            place = append_call(node)
            for i, tensor in enumerate(node.outputs):
                made_by = KerasHistory(node.operation, place, i)
                vars(tensor)["_keras_history"] = made_by
        keys.add(node_key(node, place))
    vars(graph)["_nodes"] = keys


def place_of(node: Any) -> int | None:
    """Returns where an operation lists one of its calls; None if it does not."""
    listed = node.operation._inbound_nodes
    if node.outputs:  # They say it, mostly.
        made_by = history(node.outputs[0])
        place = 0 if made_by is None else made_by.node_index
        if place < len(listed) and listed[place] is node:
            return int(place)
    return next((i for i, other in enumerate(listed) if other is node), None)


def forget_calls(operation: Any) -> None:
    """Removes the nodes of calls whose results nobody has."""
    for name in NODE_LISTS:
        vars(operation)[name] = []
