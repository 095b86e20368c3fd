"""Whether a model computes each row of a batch for itself.

Engines that call a model on a part of the rows (torch, TensorFlow) give wrong numbers
if a layer mixes rows, as `x - mean(x, axis=0)` does. That cannot be read off a model,
so it is tried: once, on four rows, in inference. What mixes rows in training alone and
is not known to the engine (batch normalization is) is not seen.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from . import _backends, _keras
from ._errors import UsageError, explain
from ._probe import draw_inputs
from ._values import to_numpy

_ROWS = 4


def check_rows(model: Any) -> None:
    """Refuses a model that gives other numbers for some rows than for all of them."""
    worst = _difference(model)
    if worst is not None:
        raise UsageError(
            explain(
                "The model mixes the rows of a batch, so replicas cannot split it.",
                where=model.name,
                expected="the same outputs for two rows as for these among four",
                received=f"outputs that differ by up to {worst:.3g}",
                fix="move what mixes rows out of the model, run it on one device, or "
                "replicate it on JAX, which computes each batch as a whole",
            )
        )


def _difference(model: Any) -> float | None:
    """Returns how far outputs differ, or None if they do not or it cannot be told."""
    inputs = draw_inputs(model, rows=_ROWS)
    if inputs is None:
        return None
    try:
        with _keras.quiet_globals(), _backends.active().fixed_global_rng():
            whole = _outputs(model, inputs)
            first = _outputs(model, _rows(inputs, slice(0, 2)))
            second = _outputs(model, _rows(inputs, slice(2, _ROWS)))
    except Exception:  # A model may want other inputs than those that were drawn.
        return None
    if whole is None or first is None or second is None:
        return None
    worst = 0.0
    for a, b, c in zip(whole, first, second, strict=True):
        if a.ndim == 0 or len(a) != _ROWS or not np.issubdtype(a.dtype, np.number):
            continue
        parts = np.concatenate([b, c]).astype("float64")
        scale = 1 + np.abs(a.astype("float64")).max(initial=0)
        worst = max(worst, np.abs(a - parts).max(initial=0) / scale)
    # Rounding differs with the size of a matrix, most of all in half precision.
    return worst if worst > 0.05 else None


def _outputs(model: Any, inputs: Any) -> list[Any] | None:
    """Calls a model without leaving a trace; None if it draws random numbers."""
    with keras.StatelessScope() as scope:
        outputs = model(inputs, training=False)
    common = _keras.global_seed_generator()
    states = [*_keras.seed_states(model), *([] if common is None else [common.state])]
    if any(scope.get_current_value(state) is not None for state in states):
        return None
    return [to_numpy(output) for output in keras.tree.flatten(outputs)]


def _rows(inputs: Any, rows: slice) -> Any:
    return keras.tree.map_structure(lambda array: array[rows], inputs)
