"""Shapes and dtypes that a graph remembers, and the state that `build()` makes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.layers.layer import Layer
from keras.src.layers.merging.base_merge import Merge
from keras.src.ops import core, numpy
from keras.src.ops.symbolic_arguments import SymbolicArguments
from keras.src.utils.python_utils import is_default

from .._identity import address
from .classes import Functional, KerasTensor, Sequential, is_of_keras
from .graph import NODE_LISTS, graph_fields, own_nodes, producer
from .layers import all_layers
from .variables import mask_of, set_mask


def set_spec(tensor: Any, shape: tuple[int | None, ...], dtype: str) -> None:
    """Gives a symbolic tensor another shape and dtype."""
    state = vars(tensor)
    state["_shape"], state["_dtype"] = tuple(shape), dtype


def set_input_spec(layer: Any, shape: tuple[int | None, ...], dtype: str) -> None:
    """Says what an `InputLayer` takes."""
    state = vars(layer)
    state["_batch_shape"], state["_dtype"] = tuple(shape), dtype


def set_build_shapes(layer: Any, shapes: dict[str, Any]) -> None:
    """Says which shapes a layer was built for, which it saves.

    Args:
        layer: A layer that was built.
        shapes: Shapes, by the names that its own have.
    """
    own = layer._build_shapes_dict
    for name, shape in shapes.items():
        if own[name] != shape:
            own[name] = shape


def detached(tensor: Any, spec: tuple[Any, str] | None = None) -> Any:
    """Returns a symbolic tensor like another that no graph knows, with its mask.

    Args:
        tensor: The symbolic tensor.
        spec: Another shape and dtype.
    """
    shape, dtype = spec or (tensor.shape, tensor.dtype)
    new = KerasTensor(
        shape, dtype=dtype, sparse=tensor.sparse, ragged=tensor.ragged, name="detached"
    )
    mask = mask_of(tensor)
    if mask is not None:
        set_mask(new, KerasTensor(mask.shape, dtype=mask.dtype, name="detached"))
    return new


@contextmanager
def no_traces(operations: Iterable[Any]) -> Iterator[None]:
    """A context in which calls of operations are not listed as part of a graph."""
    lists = [vars(op)[name] for op in operations for name in NODE_LISTS]
    counts = [(nodes, len(nodes)) for nodes in lists]
    try:
        yield
    finally:
        for nodes, count in counts:
            if len(nodes) != count:
                del nodes[count:]


@contextmanager
def no_memory() -> Iterator[None]:
    """A context in which new variables have shapes and initializers, but no values."""
    name = "uninitialized_variables"
    waiting = list(global_state.get_global_attribute(name) or ())
    try:
        with StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(name, waiting)


def replace_tensors(graph: Any, new: dict[int, Any]) -> None:
    """Puts other symbolic tensors into the calls of a graph, by id of the old ones."""

    def replaced(x: Any) -> Any:
        return new.get(address(x), x) if isinstance(x, KerasTensor) else x

    for node in own_nodes(graph):
        if not any(address(x) in new for x in node.arguments.keras_tensors):
            continue
        args, kwargs = node.arguments.convert(replaced)
        node.arguments = SymbolicArguments(*args, **kwargs)
        for tensor in node.arguments.keras_tensors:
            source = producer(tensor)
            if source is not None and not any(
                known is node for known in source.operation._outbound_nodes
            ):
                source.operation._outbound_nodes.append(node)


def take_graph(graph: Any, new: Any) -> None:
    """Gives a Functional model the graph of another one, which is then thrown away."""
    taken = [(old, made) for old, made in graph_fields(graph, new)]
    state = vars(graph)
    for name, value in list(state.items()):
        for old, made in taken:
            if value is old:
                state[name] = made
    state["_nodes"] = vars(new)["_nodes"]


def note_trainable(model: Any) -> None:
    """Writes again which layers were trainable when a model was compiled."""
    state = vars(model).get("_compiled_trainable_state")
    if state is None:
        return
    items = {part: state.get(part, part.trainable) for part in model._flatten_layers()}
    plain = getattr(state, "__wrapped__", state)
    dict.clear(plain)  # Past the tracking of a dict that Keras wraps.
    dict.update(plain, items)
    if plain is not state:
        state._update_snapshot()


def renew_states(layer: Any, batch: int) -> None:
    """Gives a stateful RNN zero states for another batch size."""
    layer.states = None
    layer._create_state_variables(batch)
    layer._expected_batch_size = batch


def trace_call(layer: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Runs a layer's own code on symbolic tensors, whatever shapes it claims.

    Returns:
        The shapes that come out.
    """
    outputs = keras.src.backend.compute_output_spec(layer.call, *args, **kwargs)
    return [getattr(x, "shape", None) for x in keras.tree.flatten(outputs)]


def says_spec(layer: Any) -> bool:
    """Tells whether a layer says what it returns, without its code being run."""
    has_own = type(layer).compute_output_spec is not Layer.compute_output_spec
    return has_own or not is_default(layer.compute_output_shape)


def run_when_called(layer: Any) -> None:
    """Lets a layer run its own code on symbolic tensors, whatever shapes it claims."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return keras.src.backend.compute_output_spec(layer.call, *args, **kwargs)

    vars(layer)["compute_output_spec"] = run


def is_keras_code(layer: Any) -> bool:
    """Tells whether what a layer does was written by Keras alone."""
    parts = all_layers(layer)
    return not any(
        isinstance(part, keras.layers.Lambda) or not is_of_keras(type(part))
        for part in parts
    )


def has_own_constructor(model: Any) -> bool:
    """Tells whether a model with a graph is of a class that makes its graph itself."""
    return type(model) not in (Functional, Sequential, keras.Model)


def is_reshape(operation: Any) -> bool:
    """Tells whether an operation gives a tensor another shape and nothing else."""
    return isinstance(operation, keras.layers.Reshape | numpy.Reshape)


def is_elementwise(operation: Any) -> bool:
    """Tells whether an operation may work on tensors element by element.

    Keras calls the arguments of those that do `x1` and `x2`, as those of products.
    """
    if isinstance(operation, keras.layers.Layer):
        apart = (keras.layers.Concatenate, keras.layers.Dot)
        return isinstance(operation, Merge) and not isinstance(operation, apart)
    if type(operation).__name__ in _PRODUCTS:
        return False
    return {"x1", "x2"} <= inspect.signature(operation.call).parameters.keys()


# Not every version of Keras has all of them.
_PRODUCTS = frozenset(
    {
        *("Append", "Correlate", "Cross", "Dot", "Inner"),
        *("Kron", "Matmul", "Outer", "Tensordot", "Vdot"),
    }
)


def fixed_ends(operation: Any, args: Any, kwargs: Any) -> list[tuple[int, int]]:
    """Returns where a slice ends that is written in numbers: (axis, end) pairs.

    The end is the number after the last element that is taken.
    """
    values = [*args, *kwargs.values()]
    rank = len(values[0].shape) if values and isinstance(values[0], KerasTensor) else 0
    if isinstance(operation, numpy.GetItem) and len(values) == 2:
        return list(_key_ends(values[1], rank))
    if isinstance(operation, core.Slice) and len(values) == 2:
        starts, sizes = values[1], operation.shape
        if all(isinstance(n, int) for n in (*starts, *sizes)):
            pairs = enumerate(zip(starts, sizes, strict=True))
            return [(axis, start + size) for axis, (start, size) in pairs if size >= 0]
    if isinstance(operation, numpy.Take) and len(values) == 2:
        indices, axis = values[1], operation.axis
        if isinstance(axis, int) and not isinstance(indices, KerasTensor):
            flat = keras.ops.convert_to_numpy(indices).reshape(-1)
            if flat.size:
                return [(axis % rank, int(flat.max()) + 1)]
    return []


def _key_ends(key: Any, rank: int) -> Iterator[tuple[int, int]]:
    keys = list(key) if isinstance(key, tuple | list) else [key]
    consuming = [k for k in keys if k is not None and k is not Ellipsis]
    axis = 0
    for k in keys:
        if k is Ellipsis:
            axis += rank - len(consuming)
        elif k is not None:
            if isinstance(k, slice) and isinstance(k.stop, int) and k.stop > 0:
                if k.step is None or k.step > 0:
                    yield axis, k.stop
            elif isinstance(k, int) and not isinstance(k, bool) and k > 0:
                yield axis, k + 1
            axis += 1


def watch_inputs(model: Any) -> list[list[Any]]:
    """Lets a model take inputs of all shapes, and lists the shapes it is given.

    Returns:
        The list, to which each call adds the shapes of its inputs.
    """
    seen: list[list[Any]] = []

    def note(inputs: Any, *_: Any) -> None:
        flat = keras.tree.flatten(inputs)
        seen.append([None if x is None else tuple(x.shape) for x in flat])

    vars(model)["_assert_input_compatibility"] = note
    return seen


def unwatch_inputs(model: Any) -> None:
    """Undoes `watch_inputs`."""
    vars(model).pop("_assert_input_compatibility", None)


# Where a layer notes the shapes that it was built for and those it allows, and where
# TensorFlow notes its variables.
BUILD_NOTES = ("_build_shapes_dict", "_input_spec", "_tracked")


def input_rule(layer: Any) -> Any:
    """Returns what a layer demands of its inputs' shapes, or None."""
    return vars(layer).get("_input_spec")


def set_input_rule(layer: Any, rule: Any) -> None:
    """Says what a layer demands of its inputs' shapes."""
    if "_input_spec" in vars(layer):
        vars(layer)["_input_spec"] = rule


def has_build(layer: Any) -> bool:
    """Tells whether a layer, or one inside it, works something out in `build()`."""
    return any(not is_default(part.build) for part in all_layers(layer))
