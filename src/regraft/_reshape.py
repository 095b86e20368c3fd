"""`clone(inputs=...)`: what may be given for the inputs, and how a copy gets it."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import numpy as np

from . import _inputs, _keras
from ._errors import UsageError, UsageTypeError, did_you_mean, explain
from ._follow import Follow, Shape
from ._identity import address

# For an input: None leaves it, a shape is written on it, a symbolic tensor or an
# array takes its place.
Leaf = Any


def read(model: Any, given: Any) -> list[Leaf]:
    """Reads `inputs=`: for each input of the model what it becomes.

    Args:
        model: The original.
        given: What the caller passed.
    """
    graph = _keras.inner_graph(model) if isinstance(model, _keras.Model) else None
    if graph is None:
        raise UsageError(
            explain(
                "This model has no graph, so its inputs cannot be changed.",
                where=model.name,
                expected="a Functional model, or a Sequential that is built",
                received=f"{type(model).__name__}, whose calls are Python code, or "
                "which is not built",
                fix="clone a model with a graph inside it, build it first, or just "
                "call it on the other shape",
            )
        )
    tensors = graph.inputs
    leaves = _sort(tensors, _by_name(graph.input, given), model.name)
    found = zip(tensors, leaves, strict=True)
    return [_leaf(old, new, model.name) for old, new in found]


def _by_name(struct: Any, given: Any) -> Any:
    """Returns a dict by the names of inputs, also if it has the keys of the model's.

    A model that takes a dict is called with its keys, whatever the inputs are named.
    """
    if not isinstance(struct, dict) or not isinstance(given, dict):
        return given
    if not all(isinstance(struct.get(key), _keras.KerasTensor) for key in given):
        return given
    return {_name(struct[key]): value for key, value in given.items()}


def _sort(tensors: list[Any], given: Any, where: str) -> list[Any]:
    """Returns what was given for each input, in their order."""
    names = [_name(x) for x in tensors]
    if isinstance(given, dict):
        for name in given:
            if name not in names:
                raise UsageError(
                    explain(
                        f"The model has no input {name!r}.",
                        where=f"argument `inputs`, {where}",
                        expected=f"one of {', '.join(map(repr, names))}",
                        received=repr(name),
                        fix=f"name an input of the model.{did_you_mean(name, names)}",
                    )
                )
        return [given.get(name) for name in names]
    if isinstance(given, list | tuple) and not _is_shape(given):
        leaves = list(given)
    else:
        leaves = [given]
    if len(leaves) != len(tensors):
        raise UsageError(
            explain(
                f"The model has {len(tensors)} inputs, not {len(leaves)}.",
                where=f"argument `inputs`, {where}",
                expected=f"something for each of {', '.join(map(repr, names))}",
                received=_outline(given),
                fix="pass a list with one entry for each input, None to leave one, or "
                "a dict by name",
            )
        )
    return leaves


def _name(tensor: Any) -> str:
    layer = _keras.input_layer_of(tensor)
    return str(tensor.name if layer is None else layer.name)


def _is_shape(value: Any) -> bool:
    sizes = (int, np.integer)
    return isinstance(value, tuple | list) and all(
        n is None or (isinstance(n, sizes) and not isinstance(n, bool)) for n in value
    )


def _outline(given: Any) -> str:
    text = " ".join(repr(given).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _leaf(old: Any, new: Any, model: str) -> Leaf:
    where = f"argument `inputs`, input {_name(old)!r} of {model}"
    if new is None:
        return None
    if isinstance(new, _keras.InputLayer):
        return new.output
    if isinstance(new, _keras.KerasTensor):
        return new
    if _is_shape(new):
        if any(n is not None and n < 1 for n in new):
            raise UsageError(
                explain(
                    "A size is not positive.",
                    where=where,
                    expected="positive numbers, or None for an open size",
                    received=repr(new),
                    fix="pass for example `(512, 512, 3)`",
                )
            )
        batch = old.shape[:1]
        return (*batch, *(None if n is None else int(n) for n in new))
    is_array = isinstance(new, np.ndarray | np.generic | _keras.Variable)
    if is_array or keras.ops.is_tensor(new):
        return _fixed(old, _keras.to_numpy(new), where)
    raise UsageTypeError(
        explain(
            "This cannot become an input.",
            where=where,
            expected="a shape without the batch axis, a `keras.Input`, a symbolic "
            "tensor, or an array",
            received=f"{_outline(new)} (of type {type(new).__name__})",
            fix="pass for example `(512, 512, 3)` or `keras.Input((512, 512, 3))`",
        )
    )


def _fixed(old: Any, value: Any, where: str) -> Any:
    """Returns an array that fixes an input, with a batch axis."""
    if value.ndim == len(old.shape) - 1:
        value = value[None]
    if value.ndim != len(old.shape):
        raise UsageError(
            explain(
                "An array has another number of axes than the input that it fixes.",
                where=where,
                expected=f"shape {old.shape}, with or without the batch axis",
                received=f"shape {value.shape}",
                fix="reshape the array",
            )
        )
    is_whole = old.dtype == "bool" or "int" in old.dtype
    if is_whole and not np.array_equal(value.astype(old.dtype), value):
        raise UsageError(
            explain(
                "An array loses values in the dtype of the input that it fixes.",
                where=where,
                expected=f"values that {old.dtype} can hold",
                received=f"an array of {value.dtype} with others",
                fix="round the array, or cast it",
            )
        )
    return value


def apply(model: Any, leaves: list[Leaf], follow: Follow) -> None:
    """Gives a copy its new inputs.

    Args:
        model: The copy.
        leaves: What `read` returned.
        follow: What will follow the change through the graph.
    """
    graph = _keras.inner_graph(model)
    replaced: list[Any] = []
    for tensor, leaf in zip(graph.inputs, leaves, strict=True):
        is_symbolic = isinstance(leaf, _keras.KerasTensor)
        if isinstance(leaf, tuple):
            follow.set_input(tensor, leaf, tensor.dtype)
        elif is_symbolic and _keras.input_layer_of(leaf) is None:
            # The end of another graph, onto which the copy can then be put.
            follow.set_input(tensor, leaf.shape, leaf.dtype)
        elif leaf is not None:
            replaced.append(leaf)
            continue
        replaced.append(tensor)
    old = list(graph.inputs)
    if any(a is not b for a, b in zip(old, replaced, strict=True)):
        with _keras.quiet_globals(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A dict of inputs may have other keys.
            _put_inputs(model, graph, old, replaced, follow)


def _put_inputs(
    model: Any, graph: Any, old: list[Any], leaves: list[Any], follow: Follow
) -> None:
    """Puts symbolic tensors and arrays in the place of a copy's inputs."""
    made = _inputs.make(old, leaves, graph.input, model.name, repeat=True)
    pairs = list(zip(old, made.tensors, strict=True))
    new = {address(a): b for a, b in pairs if a is not b}
    for a, b in pairs:
        if a is not b:
            follow.replaces(b, (a.shape, a.dtype))
    _keras.replace_tensors(graph, new)
    outputs = keras.tree.map_structure(lambda x: new.get(address(x), x), graph.output)
    _keras.take_graph(graph, _keras.Functional(made.struct, outputs))
    gone = {address(_keras.input_layer_of(a)) for a, b in pairs if a is not b}
    if isinstance(model, _keras.Sequential):
        layers = _keras.call_chain(graph)
        assert layers is not None  # One input, one call after the other.
        _keras.set_sequence(model, layers, graph)
    _keras.track_graph_layers(graph, gone)
    _keras.note_trainable(model)


__all__ = ["Leaf", "Shape", "apply", "read"]
