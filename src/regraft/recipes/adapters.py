"""Small trainable layers between the layers of a model."""

from __future__ import annotations

from typing import Any

import keras

from .._errors import UsageError, explain
from ._common import as_activation, as_graph, freeze_but, whole_number


def insert_adapters(
    model: Any,
    after: Any,
    size: int,
    *,
    activation: Any = "gelu",
    axis: int = -1,
    freeze: bool = False,
) -> Any:
    """Puts a bottleneck with a shortcut behind layers: down, activation, up, add.

    The weights of the way up start at zero: the new model computes exactly what the
    old one did.

    Args:
        model: A model or its graph.
        after: The layers, each of which gets an adapter of its own.
        size: The width of the bottleneck.
        activation: The activation in the bottleneck.
        axis: The axis of the channels: 1 for `"channels_first"`.
        freeze: Whether all that was there before is frozen. If the model was
            compiled, its optimizer then starts anew.

    Returns:
        A new model.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(9, name="a")])
    >>> new = regraft.recipes.insert_adapters(model, "a", 2, freeze=True)
    >>> [tuple(w.shape) for w in new.trainable_weights]
    [(9, 2), (2,), (2, 9), (9,)]
    """
    whole_number("size", size)
    as_activation("activation", activation)
    found = as_graph(model)
    nodes = {id(node.layer): node for node in found.find(after)}
    names = {f"{node.name}_adapter" for node in nodes.values()}

    def adapter(layer: Any) -> Any:
        node = nodes[id(layer)]
        if not node.outputs:
            raise _unknown(node.path)
        given, name = node.outputs[0], f"{node.name}_adapter"
        _check_axis(axis, given.shape, node.path)
        policy = getattr(layer, "dtype_policy", None)
        x = keras.Input(batch_shape=given.shape, dtype=given.dtype)
        # Paths of variables begin with the layer: each adapter has names of its own.
        about = {"dtype": policy, "name": f"{name}_down", "activation": activation}
        down = _dense(size, x.shape, axis, **about)(x)
        about = {"dtype": policy, "name": f"{name}_up", "kernel_initializer": "zeros"}
        up = _dense(x.shape[axis], down.shape, axis, **about)(down)
        added = keras.layers.Add(dtype=policy, name=f"{name}_add")([x, up])
        return keras.Model(x, added, name=name)

    compiled = "fresh" if freeze else "copy"
    new = found.insert(adapter, after=after).build(compiled=compiled)
    if freeze:
        inside = [n for n in as_graph(new).walk() if names & {*n.path.split("/")}]
        learned = [v for node in inside for v in node.layer.trainable_variables]
        freeze_but(new, {id(node.layer) for node in inside}, learned)
    return new


def _dense(size: int, shape: Any, axis: int, **options: Any) -> Any:
    """Returns a dense layer over any one axis."""
    axis %= len(shape)
    if axis == len(shape) - 1:
        return keras.layers.Dense(size, **options)
    letters = "abcdefgh"[: len(shape)]
    there = letters.replace(letters[axis], "z")
    sizes = [*shape[1:]]
    sizes[axis - 1] = size
    return keras.layers.EinsumDense(
        f"{letters},{letters[axis]}z->{there}", tuple(sizes), bias_axes="z", **options
    )


def _check_axis(axis: Any, shape: Any, where: str) -> None:
    """Refuses axes that there are not, or that have no size of their own."""
    rank = len(shape)
    is_axis = isinstance(axis, int) and not isinstance(axis, bool)
    if is_axis and -rank < axis < rank and axis != 0 and shape[axis] is not None:
        return
    raise UsageError(
        explain(
            "`insert_adapters` must know the axis of the channels.",
            where=where,
            expected=f"`axis=` from 1 to {rank - 1}, or from {1 - rank} to -1, with a "
            f"known size in {tuple(shape)}",
            received=f"axis={axis!r}",
            fix="leave out `axis=` for channels last, pass `axis=1` for channels first",
        )
    )


def _unknown(where: str) -> UsageError:
    return UsageError(
        explain(
            "`insert_adapters` must know the shape of what a layer returns.",
            where=where,
            expected="a layer that a Functional or Sequential model calls",
            received="a layer inside another layer, which calls it in Python code",
            fix="choose the layer around it",
        )
    )
