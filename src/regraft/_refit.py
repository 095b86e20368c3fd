"""Fits a layer that was built for one input shape to another.

`clone_model` draws new weights, so a layer that meets another shape than its
original did (a `Dense` behind a `Flatten` of a larger image) may simply be
built again. A *ghost*, a copy that has forgotten its variables, is called on
the new shape first: if its weights come out as the layer's own, nothing needs
to change.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import keras

from . import _keras
from ._ghosts import ghost_of
from ._identity import address


def refit(
    layer: Any, args: Any, kwargs: dict[str, Any], *, keep_inside: bool = False
) -> Any:
    """Returns the layer, or one like it with weights for other input shapes.

    Args:
        layer: A layer that was just made and is used nowhere.
        args: What it is going to be called with.
        kwargs: What it is going to be called with, by keyword.
        keep_inside: Whether the layers inside it are not those that it would make.
    """
    models = _keras.Functional | _keras.Sequential
    if isinstance(layer, models) or not layer.built or not layer.weights:
        return layer
    with _keras.quiet_globals(draws=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ghost = _ghost(layer, args, kwargs, keep_inside=keep_inside)
        if ghost is not None:
            if is_alike(ghost, layer):
                return layer
            if is_complete(ghost, layer):
                return ghost
        return layer if keep_inside else _keras.made_again(layer) or layer


def _ghost(layer: Any, args: Any, kwargs: dict[str, Any], *, keep_inside: bool) -> Any:
    ghost, operations = ghost_of(layer)
    inside = _keras.all_layers(ghost)
    for operation in filter(has_states, operations):
        operation.states = None
    try:
        detached = detach(args, kwargs)
        ghost(*detached[0], **detached[1])
    except Exception:  # Whatever a user's layer raises: this way is closed.
        return None
    quantize_alike(ghost, layer)
    for operation in operations:
        _keras.forget_calls(operation)
    if keep_inside and not holds(ghost, inside):
        return None
    return ghost


def holds(layer: Any, inside: list[Any]) -> bool:
    """Tells whether a layer holds just these layers, itself among them.

    Some layers make those inside them in `build()`, each time that it is called.
    """
    return {address(x) for x in _keras.all_layers(layer)} == {
        address(x) for x in inside
    }


def quantize_alike(ghost: Any, layer: Any) -> None:
    """Quantizes the layers that a ghost's `build()` made like those that there were.

    A layer that makes those inside it in `build()` makes them of floats, each time.
    """
    made, own = _with_variables(ghost), _with_variables(layer)
    if [type(part) for part in made] == [type(part) for part in own]:
        for part, other in zip(made, own, strict=True):
            if _keras.is_quantized(other) and not _keras.is_quantized(part):
                _keras.quantize_like(part, other)


def _with_variables(layer: Any) -> list[Any]:
    return [x for x in _keras.all_layers(layer) if _keras.own_variables(x)]


def has_states(layer: Any) -> bool:
    """Tells whether a layer has states that were made for one batch size."""
    return isinstance(layer, keras.layers.RNN) and bool(layer.stateful)


def detach(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns the arguments of a call with symbolic tensors that have no history."""
    by_name = {k: keras.tree.map_structure(_detached, v) for k, v in kwargs.items()}
    return keras.tree.map_structure(_detached, args), by_name


def _detached(x: Any) -> Any:
    """Returns a symbolic tensor without a history: a trial leaves no trace."""
    if not isinstance(x, _keras.KerasTensor):
        return x
    return _keras.KerasTensor(x.shape, dtype=x.dtype, sparse=x.sparse)


def weights(layer: Any) -> Counter[Any]:
    """Returns the names and shapes of a layer's weights, and how often each is."""
    return Counter((_keras.own_name(v), tuple(v.shape)) for v in layer.weights)


def states(layer: Any) -> list[Any]:
    """Returns what RNNs inside a layer remember from batch to batch."""
    return [v for x in _keras.all_layers(layer) for v in _keras.held_states(x)]


def shapes_of_states(layer: Any) -> list[tuple[int, ...]]:
    """Returns the shapes of these, which begin with the size of a batch."""
    return [tuple(v.shape) for v in states(layer)]


def is_alike(ghost: Any, layer: Any) -> bool:
    """Tells whether a ghost came out with the weights that the layer has."""
    is_same_batch = shapes_of_states(ghost) == shapes_of_states(layer)
    return is_same_batch and not weights(ghost) - weights(layer)


def is_complete(ghost: Any, layer: Any) -> bool:
    """Tells whether `build()` made everything again, and nothing twice."""
    names = [Counter(map(_keras.own_name, x.weights)) for x in (ghost, layer)]
    parts = [len(_keras.all_layers(x)) for x in (ghost, layer)]
    return names[0] == names[1] and parts[0] == parts[1]
