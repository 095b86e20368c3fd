"""Batch normalization as a part of the layer before it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from .. import _keras
from ._common import (
    Array,
    as_built,
    called_to_learn,
    channel_axis,
    exchange,
    graphs,
    value,
)
from ._remaking import remade

_CONV = tuple(getattr(keras.layers, f"Conv{n}D") for n in (1, 2, 3))
_TRANSPOSED = tuple(getattr(keras.layers, f"Conv{n}DTranspose") for n in (1, 2, 3))
_DEPTHWISE = tuple(getattr(keras.layers, f"DepthwiseConv{n}D") for n in (1, 2))
_SEPARABLE = tuple(getattr(keras.layers, f"SeparableConv{n}D") for n in (1, 2))
_FOLDABLE = (*_CONV, *_TRANSPOSED, *_DEPTHWISE, *_SEPARABLE, keras.layers.Dense)


def fold_batchnorm(model: Any) -> Any:
    """Makes each batch normalization a part of the layer whose output it gets.

    In inference a batch normalization multiplies each channel by a number and adds
    one. A convolution or `Dense` before it can do that with its own weights. Layers
    that other layers use as well, that have an activation, or that are called more
    than once keep their normalization, as do those called with `training=True`, those
    of another precision, or whose precision the new weights are too large for, and
    classes of your own that compute something else.

    Args:
        model: A model or its graph.

    Returns:
        A new model that computes the same in inference, up to rounding. It is meant
        for inference: in training it does not normalize. The notes of its lineage
        say how many layers were folded.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(9, name="a"),
    ...     keras.layers.BatchNormalization(name="b")])
    >>> new = regraft.recipes.fold_batchnorm(model)
    >>> [layer.name for layer in new.layers]
    ['a']
    >>> regraft.lineage(new).notes
    ('fold_batchnorm: 1 of 1 BatchNormalization layers folded',)
    """
    found = as_built(model)
    learning = {id(node.layer) for node in called_to_learn(found)}
    made: dict[int, Any] = {}
    gone: dict[int, Any] = {}
    for prefix, part in graphs(found):
        for node in part.find(keras.layers.BatchNormalization):
            before = part[node.sources[0]] if node.sources else None
            if before is None or id(node.layer) in learning:
                continue
            if _may_fold(found, part, before, node):
                shape = part[before.sources[0]].outputs[before.sources[0].output].shape
                where = f"{prefix}{before.path}"
                folded = _folded(before.layer, node.layer, shape, where)
                if _is_finite(folded):
                    made[id(before.layer)] = folded
                    gone[id(node.layer)] = node.layer
    count = {id(n.layer) for n in found.find(keras.layers.BatchNormalization)}
    new = exchange(found, made)
    if gone:
        new = new.remove(lambda node: id(node.layer) in gone)
    said = f"{len(gone)} of {len(count)} BatchNormalization layers folded"
    return new.say(f"fold_batchnorm: {said}").build()


def _may_fold(whole: Any, part: Any, before: Any, node: Any) -> bool:
    """Tells whether a normalization acts on all that a layer returns, and alone."""
    layer, norm = before.layer, node.layer
    if not _keras.computes_like(layer, *_FOLDABLE):
        return False
    if not _keras.computes_like(norm, keras.layers.BatchNormalization):
        return False
    if norm.axis not in (-1, *range(1, 6)):
        return False
    rank = len(before.outputs[0].shape)
    if norm.axis % rank != channel_axis(layer, rank):
        return False
    places = {(n.path, n.call) for n in whole.walk() if n.layer in (layer, norm)}
    is_output = any(ref.path == before.path for ref in part.outputs)
    is_plain = layer.activation is keras.activations.linear
    is_plain &= getattr(layer, "lora_enabled", False) is False
    is_plain &= getattr(layer, "quantization_mode", None) is None
    # They are given what the layer returns before it is normalized.
    is_plain &= layer.activity_regularizer is None and norm.activity_regularizer is None
    is_plain &= before.outputs[0].dtype == node.outputs[0].dtype
    return (
        len(places) == 2 and not is_output and is_plain and len(before.consumers) == 1
    )


def _folded(layer: Any, norm: Any, shape: Any, where: str) -> Any:
    scale, shift = _factors(norm)
    weights: dict[str, Any] = {}
    if isinstance(layer, _SEPARABLE):
        weights["pointwise_kernel"] = lambda old: _times(old, scale, -1)
    elif isinstance(layer, _DEPTHWISE):
        weights["kernel"] = lambda old: _times(old, scale.reshape(old.shape[-2:]), -1)
    else:
        axis = -2 if isinstance(layer, _TRANSPOSED) else -1
        weights["kernel"] = lambda old: _times(old, scale, axis)
    bias = value(layer.bias).astype("float64") if layer.use_bias else 0.0
    weights["bias"] = bias * scale + shift
    return remade(layer, shape, weights, where=where, use_bias=True)


def _is_finite(layer: Any) -> bool:
    """Tells whether the precision of all weights has room for their values."""
    return all(bool(np.isfinite(value(v)).all()) for v in layer.weights)


def _factors(norm: Any) -> tuple[Array, Array]:
    """Returns what a normalization multiplies by, and what it adds."""
    variance = value(norm.moving_variance).astype("float64")
    scale = 1.0 / np.sqrt(variance + norm.epsilon)
    if norm.scale:
        scale = scale * value(norm.gamma)
    shift = -value(norm.moving_mean).astype("float64") * scale
    if norm.center:
        shift = shift + value(norm.beta)
    return scale, shift


def _times(kernel: Array, scale: Array, axis: int) -> Array:
    """Multiplies a kernel by a factor for each of its output channels."""
    shape = scale.shape if scale.ndim > 1 else (scale.size, *[1] * (-axis - 1))
    return kernel.astype("float64") * scale.reshape(shape)
