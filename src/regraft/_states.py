"""What is no weight of a copy, and starts anew with its weights: metrics, states."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from . import _keras
from ._walk import Walk


def reset_compile_metrics(walk: Walk) -> None:
    """Starts the metrics anew that `compile()` made for the models of a copy."""
    for metric in _compile_metrics(walk):
        _reset_metric(metric)


def _compile_metrics(walk: Walk) -> list[Any]:
    models = [new for _, new in walk.operations if isinstance(new, _keras.Trainer)]
    return [metric for model in models for metric in _keras.compile_metrics(model)]


def _metrics_in_layers(walk: Walk) -> list[Any]:
    """Returns the metrics that are no part of what `compile()` made."""
    compiled = _keras.held_by(_compile_metrics(walk))
    held = [(metric, _keras.held_by([metric])) for _, metric in walk.metrics]
    return [metric for metric, own in held if not own or not own <= compiled]


def reset_states(walk: Walk) -> None:
    """Starts the metrics in layers, and the states of those that have some, anew."""
    for metric in _metrics_in_layers(walk):
        _reset_metric(metric)
    for _, layer in walk.operations:
        if getattr(layer, "stateful", False) and hasattr(layer, "reset_state"):
            _reset_layer(layer)


def _reset_layer(layer: Any) -> None:
    states = _keras.held_states(layer)
    for state in states:  # Those of several cells are lists, which Keras cannot reset.
        state.assign(np.zeros(state.shape, _keras.numpy_dtype(state.dtype)))
    if not states and _takes_nothing(layer.reset_state):
        layer.reset_state()


def _takes_nothing(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True


def _reset_metric(metric: Any) -> None:
    try:
        metric.reset_state()
    except (AttributeError, NotImplementedError, TypeError):
        return  # A metric that was never built has nothing to reset.
