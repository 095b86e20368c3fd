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


def check_rows(model: Any, many: Any = None) -> None:
    """Refuses a model that gives other numbers for some rows than for all of them.

    Args:
        model: The model, which is called on all rows.
        many: What calls it in parts. If None, it is called on two rows at a time.
    """
    worst = _difference(model, many)
    if worst is not None:
        raise UsageError(
            explain(
                "The model mixes the rows of a batch, so replicas cannot split it.",
                where=model.name,
                expected="the same outputs for some rows as for these among four",
                received=f"outputs that differ by up to {worst:.2g} of the largest",
                fix="move what mixes rows out of the model, run it on one device, or "
                "replicate it on JAX, which computes each batch as a whole",
            )
        )


def _difference(model: Any, many: Any) -> float | None:
    """Returns how far outputs differ, or None if they do not or it cannot be told."""
    inputs = draw_inputs(model, rows=_ROWS)
    if inputs is None:
        return None
    try:
        with _keras.quiet_globals(), _backends.active().fixed_global_rng():
            whole, again = (_outputs(model, inputs) for _ in range(2))
            if _distance(whole, again):
                return None  # It draws random numbers.
            return _distance(whole, _in_parts(model, many, inputs)) or None
    except Exception:  # A model may want other inputs than those that were drawn.
        return None


def _in_parts(model: Any, many: Any, inputs: Any) -> list[Any]:
    if many is not None:
        before = [(v, to_numpy(v).copy()) for v in model.non_trainable_variables]
        try:
            return _arrays(many(inputs, training=False))
        finally:
            for variable, value in before:
                variable.assign(value)
    half = _ROWS // 2
    first = _outputs(model, keras.tree.map_structure(lambda x: x[:half], inputs))
    second = _outputs(model, keras.tree.map_structure(lambda x: x[half:], inputs))
    pairs = zip(first, second, strict=True)
    return [np.concatenate([a, b]) if a.ndim else a for a, b in pairs]


def _distance(whole: list[Any], parts: list[Any]) -> float:
    """Returns how far outputs with rows differ, in parts of the largest number."""
    worst = 0.0
    for a, b in zip(whole, parts, strict=True):
        if a.ndim == 0 or len(a) != _ROWS or not np.issubdtype(a.dtype, np.number):
            continue
        mine, other = a.astype("float64"), b.astype("float64")
        far = np.abs(mine - other).max(initial=0)
        far /= max(np.abs(mine).max(initial=0), 1e-6)
        # Rounding differs with the size of a matrix, most of all in half precision.
        worst = max(worst, far if far > (0.05 if a.dtype.itemsize < 4 else 1e-3) else 0)
    return worst


class _DrawsNumbers(Exception):
    """Outputs that change with a random stream cannot be compared."""


def _outputs(model: Any, inputs: Any) -> list[Any]:
    """Calls a model, whose variables stay as they are."""
    with keras.StatelessScope() as scope:
        outputs = model(inputs, training=False)
    common = _keras.global_seed_generator()
    states = [*_keras.seed_states(model), *([] if common is None else [common.state])]
    if any(scope.get_current_value(state) is not None for state in states):
        raise _DrawsNumbers
    return _arrays(outputs)


def _arrays(outputs: Any) -> list[Any]:
    return [to_numpy(output) for output in keras.tree.flatten(outputs)]
