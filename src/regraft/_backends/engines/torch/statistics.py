"""Statistics of the whole batch, for layers that see a replica's rows.

They pass through a few functions of Keras: `moments` over the axis of rows, and the
sums that batch normalization takes under a mask, are summed over all replicas. Outside
of a replica's run these functions are what they were.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Any

import keras
import torch
from keras.src.backend.torch import nn, numpy
from keras.src.backend.torch.core import convert_to_tensor

_here = threading.local()


@contextmanager
def acting_as(share: Any) -> Iterator[None]:
    """A context in which this thread runs a replica's share."""
    _here.share = share
    try:
        yield
    finally:
        _here.share = None


def running() -> Any:
    """Returns the share that this thread runs, or None."""
    return getattr(_here, "share", None)


@lru_cache
def install() -> None:
    """Lets Keras ask for the replica that is running, from now on."""
    nn.moments = _over_replicas(nn.moments)
    numpy.sum = _summed_under_mask(numpy.sum)
    norm = keras.layers.BatchNormalization
    norm._moments = _marking_masks(norm._moments)


def _over_replicas(plain: Any) -> Any:
    @wraps(plain)
    def moments(
        x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False
    ) -> Any:
        share = running()
        if share is None:
            return plain(x, axes, keepdims, synchronized=synchronized)
        x = convert_to_tensor(x)
        axes = _positive(axes, x.ndim)
        if 0 not in axes:
            return plain(x, axes, keepdims)
        kind = x.dtype
        if kind == torch.float16:  # Too narrow for sums.
            x = x.to(torch.float32)
        size = math.prod(x.shape[axis] for axis in axes)
        sums = torch.sum(x, axes, keepdim=True)
        squares = torch.sum(torch.square(x), axes, keepdim=True)
        count, sums, squares = share.total(
            "moments", [x.new_tensor(float(size)), sums, squares]
        )
        mean = sums / count
        variance = squares / count - torch.square(mean)
        if not keepdims:
            mean, variance = torch.squeeze(mean, axes), torch.squeeze(variance, axes)
        if kind == torch.float16:
            limit = torch.finfo(kind).max
            mean, variance = (
                torch.clip(v, -limit, limit).to(kind) for v in (mean, variance)
            )
        return mean, variance

    return moments


def _positive(axes: Any, ndim: int) -> list[int]:
    listed = range(ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    return [axis % ndim for axis in listed]


def _marking_masks(plain: Any) -> Any:
    @wraps(plain)
    def _moments(layer: Any, inputs: Any, mask: Any) -> Any:
        if mask is None or running() is None:
            return plain(layer, inputs, mask)
        _here.sums = True
        try:
            return plain(layer, inputs, mask)
        finally:
            _here.sums = False

    return _moments


def _summed_under_mask(plain: Any) -> Any:
    @wraps(plain)
    def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        result = plain(x, axis, keepdims)
        if getattr(_here, "sums", False) and 0 in _positive(axis, x.ndim):
            [result] = running().total("sums under a mask", [result])
        return result

    return sum
