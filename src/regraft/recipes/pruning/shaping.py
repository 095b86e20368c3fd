"""Rules for layers without weights: they pass channels on, move them or merge them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import layers

from ... import _keras
from .._common import channel_axis
from .cut import Cut, Step, Unequal
from .table import Found, pruning_rule
from .weighted import check_activation


def _kinds(*names: str, dims: str = "123") -> list[Any]:
    found = [getattr(layers, f"{name}{n}D", None) for name in names for n in dims]
    return [kind for kind in found if kind is not None]


@pruning_rule(
    *(layers.Activation, layers.ReLU, layers.LeakyReLU, layers.ELU),
    *(layers.Dropout, layers.GaussianDropout, layers.GaussianNoise),
    *(layers.AlphaDropout, layers.ActivityRegularization, layers.Identity),
    *("relu", "relu6", "elu", "selu", "gelu", "silu", "sigmoid", "tanh", "softplus"),
    *("softsign", "leaky_relu", "hard_sigmoid", "hard_silu", "log_sigmoid", "mish"),
    *("abs", "absolute", "exp", "log", "square", "sqrt", "negative", "clip", "cast"),
    passes=True,
)
def elementwise(step: Step) -> Found:
    """Each number by itself."""
    check_activation(step, step.cut)
    if not isinstance(step.layer, _keras.Layer):
        _check_constants(step, keras.tree.flatten(_keras.settings(step.layer)))
    _check_constants(step, step.constants)
    return step.cut, None


def _check_constants(step: Step, constants: Iterable[Any]) -> None:
    """Refuses arrays that may have a number for each channel."""
    if any(np.ndim(x) for x in constants if not isinstance(x, str)):
        raise step.refusal("it is given an array with a number for each channel")


@pruning_rule(layers.Rescaling, passes=True)
def rescaling(step: Step) -> Found:
    """Each number by itself, if the factors are not those of channels."""
    if np.ndim(step.layer.scale) or np.ndim(step.layer.offset):
        raise step.refusal("it has a factor for each channel")
    return step.cut, None


@pruning_rule(
    *_kinds("ZeroPadding", "Cropping", "UpSampling", "SpatialDropout"),
    *_kinds("MaxPooling", "AveragePooling"),
    *_kinds("AdaptiveMaxPooling", "AdaptiveAveragePooling"),
    layers.Resizing,
    passes=True,
)
def spatial(step: Step) -> Found:
    """Each channel by itself."""
    step.on(channel_axis(step.layer, len(step.returned)))
    return step.cut, None


@pruning_rule(*_kinds("GlobalMaxPooling", "GlobalAveragePooling"), passes=True)
def global_pooling(step: Step) -> Found:
    """Each channel becomes one number."""
    step.on(channel_axis(step.layer, len(step.shapes[0])))
    if step.cut is None or step.layer.keepdims:
        return step.cut, None
    return step.cut.moved(1), None


@pruning_rule(layers.Softmax)
def softmax(step: Step) -> Found:
    """Divides by a sum over an axis."""
    axes = np.atleast_1d(step.layer.axis) % len(step.returned)
    if step.cut is not None and step.cut.axis in axes:
        raise step.refusal("it divides by the sum over all channels")
    return step.cut, None


# --- places ---------------------------------------------------------------------------


def _spread(step: Step, cut: Cut) -> Any:
    """Returns for each number of a tensor, without the batch, whether it stays."""
    shape = step.shapes[0][1:]
    if None in shape:
        raise step.refusal(f"it is given a shape that is not known: {step.shapes[0]}")
    along = [1] * len(shape)
    along[cut.axis - 1] = -1
    return np.broadcast_to(np.array(cut.kept).reshape(along), shape)


def _gathered(step: Step, mask: Any) -> Cut:
    """Returns the axis on which all that is deleted lies."""
    for axis in range(mask.ndim):
        others = tuple(a for a in range(mask.ndim) if a != axis)
        kept = mask.any(others)
        along = [1] * mask.ndim
        along[axis] = -1
        if (mask == kept.reshape(along)).all():
            return Cut(axis + 1, tuple(bool(k) for k in kept))
    raise step.refusal("what is deleted would leave holes in its result")


@pruning_rule(layers.Flatten)
def flatten(step: Step) -> Found:
    """Each channel becomes several numbers, here and there."""
    if step.cut is None:
        return None, None
    mask = _spread(step, step.cut)
    if step.layer.data_format == "channels_first" and mask.ndim > 1:
        mask = np.moveaxis(mask, 0, -1)  # So does the layer.
    return _gathered(step, mask.reshape(-1)), None


@pruning_rule(layers.Reshape)
def reshape(step: Step) -> Found:
    """The same numbers in another form."""
    cut, target = step.cut, list(step.layer.target_shape)
    if cut is None:
        return None, None
    if None in step.shapes[0][1:]:
        is_last = cut.axis == len(step.shapes[0]) - 1
        if not is_last or step.returned[-1] != len(cut.kept):
            raise step.refusal(f"it is given a shape that is not known: {step.shapes}")
        found = cut.moved(len(step.returned) - 1)
    else:
        found = _gathered(step, _spread(step, cut).reshape(step.returned[1:]))
    if target[found.axis - 1] == -1:
        return found, None
    target[found.axis - 1] = sum(found.kept)
    return found, step.remade({}, target_shape=tuple(target))


@pruning_rule(layers.Permute)
def permute(step: Step) -> Found:
    """The axes in another order."""
    if step.cut is None:
        return None, None
    return step.cut.moved(list(step.layer.dims).index(step.cut.axis) + 1), None


@pruning_rule(layers.RepeatVector)
def repeat_vector(step: Step) -> Found:
    """The channels of a vector at each time."""
    return (None if step.cut is None else step.cut.moved(2)), None


# --- several tensors ------------------------------------------------------------------


@pruning_rule(
    *(layers.Add, layers.Subtract, layers.Multiply, layers.Average),
    *(layers.Maximum, layers.Minimum),
    *("add", "subtract", "multiply", "divide", "true_divide", "maximum", "minimum"),
    passes=True,
)
def merge(step: Step) -> Found:
    """Number by number: all tensors must lose the same channels."""
    _check_constants(step, step.constants)
    rank = len(step.returned)
    cuts = [cut for cut in step.given if cut is not None]
    if not cuts:
        return None, None
    if any(len(shape) != rank for shape in step.shapes):
        raise step.refusal(f"it is given tensors of different ranks: {step.shapes}")
    axis = cuts[0].axis
    if any(cut.axis != axis for cut in cuts):
        raise step.refusal("channels of different axes are deleted")
    kept = tuple(np.all([cut.kept for cut in cuts], axis=0).tolist())
    found = Cut(axis, kept)
    # What has one channel is used for all of them.
    wide = [i for i, shape in enumerate(step.shapes) if shape[axis] != 1]
    others = [i for i in wide if step.given[i] != found]
    if others:
        raise Unequal(others, kept)
    return found, None


@pruning_rule(layers.Concatenate)
def concatenate(step: Step) -> Found:
    """The channels of one tensor behind those of the other."""
    axis = step.layer.axis % len(step.returned)
    cuts = [cut for cut in step.given if cut is not None]
    if not cuts:
        return None, None
    if all(cut.axis == axis for cut in cuts):
        kept: list[bool] = []
        for cut, shape in zip(step.given, step.shapes, strict=True):
            kept += [True] * shape[axis] if cut is None else cut.kept
        return Cut(axis, tuple(kept)), None
    if any(cut.axis != cuts[0].axis for cut in cuts):
        raise step.refusal("channels of different axes are deleted")
    both = tuple(np.all([cut.kept for cut in cuts], axis=0).tolist())
    others = [i for i, cut in enumerate(step.given) if cut is None or cut.kept != both]
    if others:
        raise Unequal(others, both)
    return cuts[0], None
