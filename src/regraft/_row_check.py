"""Whether a model computes each row of a batch for itself.

Engines that call a model on a part of the rows (torch, TensorFlow) give wrong numbers
if a layer mixes rows, as `x - mean(x, axis=0)` does, and torch's also if one leaves
a sum over rows behind, as `add_loss(sum(x))` does: there it is taken for a mean. That
cannot be read off a model, so it is tried: once, on four rows, in inference. What a
layer does in training alone and is not known to the engine (batch normalization is) is
not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from . import _backends, _keras
from ._errors import UsageError, explain
from ._probe import draw_inputs
from ._values import to_numpy

_ROWS = 4
_LOSSES = "the losses that layers add"


@dataclass(frozen=True)
class _Result:
    """What a call gave.

    Attributes:
        outputs: The outputs.
        left: What it left behind: the losses of layers, and variables, by path.
    """

    outputs: list[Any]
    left: dict[str, Any]


def check_rows(model: Any, many: Any = None) -> None:
    """Refuses a model that gives other numbers for some rows than for all of them.

    Args:
        model: The model, which is called on all rows.
        many: What calls it in parts. If None, it is called on two rows at a time.
    """
    results = _whole_and_in_parts(model, many)
    if results is None:
        return
    whole, parts = results
    worst = max(map(_distance, whole.outputs, parts.outputs), default=0.0)
    if worst:
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
    for name, value in parts.left.items():
        if _far(whole.left[name], value):
            raise UsageError(
                explain(
                    "A layer leaves something behind that is no mean over rows, so "
                    "replicas cannot put it together.",
                    where=f"{model.name}: {name}",
                    expected="the same number from replicas as from the whole batch",
                    received=f"{value}, and not {whole.left[name]}",
                    fix="leave a mean over rows behind, give a variable that adds up "
                    '`aggregation="sum"`, or replicate the model on JAX',
                )
            )


def _whole_and_in_parts(model: Any, many: Any) -> tuple[_Result, _Result] | None:
    """Calls a model in both ways; returns None if that cannot be compared."""
    inputs = draw_inputs(model, rows=_ROWS)
    if inputs is None:
        return None
    try:
        with _keras.fixed_globals(), _backends.active().fixed_global_rng():
            whole = _call(model, inputs, reads_left=many is not None)
            again = _call(model, inputs)
            if any(map(_distance, whole.outputs, again.outputs)):
                return None  # It draws random numbers.
            return whole, _in_parts(model, many, inputs)
    except Exception:  # A model may want other inputs than those that were drawn.
        return None


def _in_parts(model: Any, many: Any, inputs: Any) -> _Result:
    if many is not None:
        before = [(v, to_numpy(v).copy()) for v in model.non_trainable_variables]
        try:
            outputs = _arrays(many(inputs, training=False))
            left = {
                variable.path: to_numpy(variable).copy()
                for variable, _ in before
                if variable.aggregation != "only_first_replica"  # It says so itself.
            }
            return _Result(outputs, {**left, _LOSSES: _sum(many.losses)})
        finally:
            for variable, value in before:
                variable.assign(value)
    half = _ROWS // 2
    first = _call(model, keras.tree.map_structure(lambda x: x[:half], inputs))
    second = _call(model, keras.tree.map_structure(lambda x: x[half:], inputs))
    pairs = zip(first.outputs, second.outputs, strict=True)
    return _Result([np.concatenate([a, b]) if a.ndim else a for a, b in pairs], {})


def _distance(whole: Any, parts: Any) -> float:
    """Returns how far outputs with rows differ, in parts of the largest number."""
    return _far(whole, parts) if whole.ndim and len(whole) == _ROWS else 0.0


def _far(whole: Any, parts: Any) -> float:
    """Returns how far arrays differ, if rounding does not explain it."""
    if whole.shape != parts.shape or not np.issubdtype(whole.dtype, np.number):
        return 0.0
    mine, other = whole.astype("float64"), parts.astype("float64")
    far = np.abs(mine - other).max(initial=0) / max(np.abs(mine).max(initial=0), 1e-6)
    # Rounding differs with the size of a matrix, most of all in half precision.
    return float(far) if far > (0.05 if whole.dtype.itemsize < 4 else 1e-3) else 0.0


class _DrawsNumbers(Exception):
    """Outputs that change with a random stream cannot be compared."""


def _call(model: Any, inputs: Any, *, reads_left: bool = False) -> _Result:
    """Calls a model, whose variables stay as they are."""
    with keras.StatelessScope(collect_losses=True) as scope:
        outputs = model(inputs, training=False)
        left = {_LOSSES: _sum(model.losses)} if reads_left else {}
    common = _keras.global_seed_generator()
    states = [*_keras.seed_states(model), *([] if common is None else [common.state])]
    if any(scope.get_current_value(state) is not None for state in states):
        raise _DrawsNumbers
    for variable in model.non_trainable_variables if reads_left else ():
        value = scope.get_current_value(variable)
        left[variable.path] = to_numpy(variable if value is None else value)
    return _Result(_arrays(outputs), left)


def _sum(losses: list[Any]) -> Any:
    return np.asarray(sum(float(to_numpy(loss)) for loss in losses))


def _arrays(outputs: Any) -> list[Any]:
    return [to_numpy(output) for output in keras.tree.flatten(outputs)]
