"""Rules for layers that have weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import layers

from .._common import Array, channel_axis
from .._remaking import remade
from .cut import Cut, Kept, Step, take
from .table import Found, pruning_rule, rule_of


def _cut(axis: int, kept: Kept | None) -> Cut | None:
    return None if kept is None else Cut(axis, kept)


def _taking(axes: Mapping[int, Kept | None]) -> Callable[[Array], Array]:
    return lambda old: take(old, axes)


def _made(step: Step, found: Cut | None, size: str, weights: Any) -> Found:
    """Returns what is left of a layer that makes channels."""
    if step.cut is None and found is None:
        return None, None
    check_activation(step, found)
    config = {} if step.chosen is None else {size: sum(step.chosen)}
    return found, step.remade(weights, **config)


def check_activation(step: Step, cut: Cut | None) -> None:
    """Refuses activations that mix the channels of which some are deleted."""
    function = getattr(step.layer, "activation", None)
    if cut is None or function is None:
        return
    is_last = cut.axis == len(step.returned) - 1
    x = np.linspace(-2.0, 2.0, 12, dtype="float32").reshape(3, 4)
    part = (slice(None), slice(2)) if is_last else (slice(2), slice(None))
    try:
        whole = keras.ops.convert_to_numpy(function(keras.ops.convert_to_tensor(x)))
        alone = keras.ops.convert_to_numpy(
            function(keras.ops.convert_to_tensor(np.ascontiguousarray(x[part])))
        )
        is_alike = np.allclose(whole[part], alone, atol=1e-6)
    except Exception:  # Whatever a user's function raises: it is not elementwise.
        is_alike = False
    if not is_alike:
        name = getattr(function, "__name__", repr(function))
        raise step.refusal(f"its activation {name} mixes channels")


@pruning_rule(layers.Dense, makes=True)
def dense(step: Step) -> Found:
    """A `Dense` sums over the last axis, and leaves all others alone."""
    last = len(step.returned) - 1
    if step.cut is not None and step.cut.axis != last:
        if step.chosen is not None:
            raise step.refusal("channels of two of its axes are to be deleted")
        check_activation(step, step.cut)
        return step.cut, None
    inner, found = step.on(last), _cut(last, step.chosen)
    weights = {
        "kernel": _taking({0: inner, 1: step.chosen}),
        "bias": _taking({0: step.chosen}),
    }
    return _made(step, found, "units", weights)


# Their kernels have the channels that they make before those that they are given.
_TRANSPOSED = (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose)


@pruning_rule(layers.Conv1D, layers.Conv2D, layers.Conv3D, *_TRANSPOSED, makes=True)
def conv(step: Step) -> Found:
    """A convolution sums over the channels."""
    layer = step.layer
    if getattr(layer, "groups", 1) != 1:
        raise step.refusal("its channels are in groups, which must stay equal in size")
    axis = channel_axis(layer, len(step.returned))
    inner, outer = (-1, -2) if isinstance(layer, _TRANSPOSED) else (-2, -1)
    weights = {
        "kernel": _taking({inner: step.on(axis), outer: step.chosen}),
        "bias": _taking({0: step.chosen}),
    }
    return _made(step, _cut(axis, step.chosen), "filters", weights)


@pruning_rule(layers.SeparableConv1D, layers.SeparableConv2D, makes=True)
def separable(step: Step) -> Found:
    """A depthwise convolution, and one that sums."""
    axis = channel_axis(step.layer, len(step.returned))
    given = step.on(axis)
    middle = given
    if given is not None:
        middle = Cut(axis, given).repeated(step.layer.depth_multiplier).kept
    weights = {
        "depthwise_kernel": _taking({-2: given}),
        "pointwise_kernel": _taking({-2: middle, -1: step.chosen}),
        "bias": _taking({0: step.chosen}),
    }
    return _made(step, _cut(axis, step.chosen), "filters", weights)


@pruning_rule(layers.DepthwiseConv1D, layers.DepthwiseConv2D, passes=True)
def depthwise(step: Step) -> Found:
    """Each channel has a kernel of its own, or several."""
    axis = channel_axis(step.layer, len(step.returned))
    given = step.on(axis)
    found = None
    if given is not None:
        found = Cut(axis, given).repeated(step.layer.depth_multiplier)
    check_activation(step, found)
    outer = None if found is None else found.kept
    weights = {"kernel": _taking({-2: given}), "bias": _taking({0: outer})}
    return found, step.remade(weights)


@pruning_rule(layers.BatchNormalization, passes=True)
def batch_normalization(step: Step) -> Found:
    """Each channel has statistics of its own, which go with it."""
    rank = len(step.returned)
    if step.cut is None or step.cut.axis != step.layer.axis % rank:
        return step.cut, None
    mine = _taking({0: step.cut.kept})
    return step.cut, step.remade({v.name: mine for v in step.layer.variables})


@pruning_rule(layers.PReLU, passes=True)
def prelu(step: Step) -> Found:
    """Each position has a slope of its own, if it is not shared."""
    if step.cut is None or step.cut.axis in (step.layer.shared_axes or ()):
        return step.cut, None
    return step.cut, step.remade({"alpha": _taking({step.cut.axis - 1: step.cut.kept})})


@pruning_rule(layers.Embedding, makes=True)
def embedding(step: Step) -> Found:
    """Each channel is a column of the table."""
    if step.cut is not None:
        raise step.refusal("the numbers that it is given are no channels")
    found = _cut(len(step.returned) - 1, step.chosen)
    return _made(step, found, "output_dim", {"embeddings": _taking({1: step.chosen})})


@pruning_rule(layers.SimpleRNN, layers.GRU, layers.LSTM, layers.Bidirectional)
def recurrent(step: Step) -> Found:
    """Its gates sum over what is given to them at each time."""
    inner = getattr(step.layer, "forward_layer", step.layer)
    if any(cut is not None for cut in step.given[1:]):
        raise step.refusal("channels of its initial states are to be deleted")
    if not isinstance(inner, layers.SimpleRNN | layers.GRU | layers.LSTM):
        raise step.refusal("what is inside it is not known")
    kept = step.on(len(step.shapes[0]) - 1)
    return None, step.remade({"kernel": _taking({0: kept})})


@pruning_rule(layers.ConvLSTM1D, layers.ConvLSTM2D, layers.ConvLSTM3D)
def convolutional_lstm(step: Step) -> Found:
    """Its gates sum over the channels that are given to them at each time."""
    if any(cut is not None for cut in step.given[1:]):
        raise step.refusal("channels of its initial states are to be deleted")
    is_first = step.layer.data_format == "channels_first"
    kept = step.on(2 if is_first else len(step.shapes[0]) - 1)
    return None, step.remade({"kernel": _taking({-2: kept})})


@pruning_rule(layers.TimeDistributed, makes=True)
def time_distributed(step: Step) -> Found:
    """What the layer inside does, at each time."""
    inner = step.layer.layer
    rule = rule_of(inner)
    if rule is None or (step.cut is not None and step.cut.axis < 2):
        raise step.refusal(f"what {type(inner).__name__} inside it does is not known")
    given = None if step.cut is None else step.cut.moved(step.cut.axis - 1)
    shape, returned = step.shapes[0], step.returned
    found, make = rule(
        dataclasses.replace(
            step,
            layer=inner,
            given=(given,),
            shapes=((shape[0], *shape[2:]),),
            returned=(returned[0], *returned[2:]),
        )
    )
    cut = None if found is None else found.moved(found.axis + 1)
    if make is None:
        return cut, None
    return cut, lambda: remade(
        step.layer, step.new_shape, {}, where=step.path, inside=(inner, make())
    )


@pruning_rule(layers.EinsumDense, makes=True)
def einsum_dense(step: Step) -> Found:
    """Sums over some axes, and keeps others: its equation says which."""
    layer = step.layer
    if "." in layer.equation:
        raise step.refusal(f"its equation {layer.equation!r} does not name all axes")
    left, after = layer.equation.replace(" ", "").split("->")
    before, weight = left.split(",")
    lost: dict[str, Kept] = {}
    if step.cut is not None:
        lost[before[step.cut.axis]] = step.cut.kept
    if step.chosen is not None:
        if after[-1] in lost or after[-1] not in weight:
            raise step.refusal("its own channels are not made by its kernel alone")
        lost[after[-1]] = step.chosen
    found = [Cut(i, lost[a]) for i, a in enumerate(after) if a in lost]
    if len(found) > 1:
        raise step.refusal("channels of two of its axes are to be deleted")
    cut = found[0] if found else None
    check_activation(step, cut)
    kernel = {i: lost[a] for i, a in enumerate(weight) if a in lost}
    # The axes of the bias stand in the order of the output, those between at size 1.
    axes = [after.index(a) for a in layer.bias_axes or ()]
    first = min(axes, default=0)
    bias = {c.axis - first: c.kept for c in found if c.axis in axes}
    sizes = step.returned if cut is None else cut.shape(step.returned)
    weights = {"kernel": _taking(kernel), "bias": _taking(bias)}
    return cut, step.remade(weights, partial_output_shape=tuple(sizes[1:]))


def size_of(layer: Any, returned: Any) -> int | None:
    """Returns how many channels a layer makes, if that is known."""
    inner = getattr(layer, "layer", layer)
    for name in ("filters", "units", "output_dim"):
        if hasattr(inner, name):
            return int(getattr(inner, name))
    return None if returned[-1] is None else int(returned[-1])
