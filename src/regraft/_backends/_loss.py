"""A loss that any model has."""

from __future__ import annotations

from typing import Any

import keras


def total_loss(outputs: Any, losses: list[Any]) -> Any:
    """Adds up the mean squares of all float outputs and the model's own losses."""
    ops = keras.ops
    total = ops.convert_to_tensor(0.0)
    for output in keras.tree.flatten(outputs):
        if "float" in keras.backend.standardize_dtype(output.dtype):
            total = total + ops.mean(ops.square(ops.cast(output, "float32")))
    for loss in losses:
        total = total + ops.sum(ops.cast(loss, "float32"))
    return total
