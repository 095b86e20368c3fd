"""What must hold of values that are cast to another float dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _keras
from ._errors import PrecisionError, explain


def check_cast(value: Any, dtype: str, where: str) -> None:
    """Raises an error if values get lost that a float dtype should not lose.

    Args:
        value: An array.
        dtype: What it is to be cast to.
        where: The path of what holds it.
    """
    check_range(value, dtype, where)
    if value.dtype == dtype or not _is_narrower(value.dtype, dtype):
        return
    # A dtype has nothing but whole numbers where they are large: those say nothing.
    finite = value[np.abs(value) < 1 / float(_keras.limits(str(value.dtype)).eps)]
    # Most weights are no whole numbers: no cast is needed.
    if not np.all(finite[:64] % 1 == 0) or not np.all(finite % 1 == 0):
        return
    new = finite.astype(_keras.numpy_dtype(dtype))
    changed = new.astype(finite.dtype) != finite
    if changed.any():
        first, became = finite[changed][0], new[changed][0]
        raise PrecisionError(
            explain(
                f"The values are whole numbers, which {dtype} would change.",
                where=where,
                expected=f"whole numbers that {dtype} can hold",
                received=f"{float(first):.12g}, which would become "
                f"{float(became):.12g}",
                fix="leave this layer as it is with `{'*': policy, "
                "'path/of/this/layer': None}`",
            )
        )


def check_range(value: Any, dtype: str, where: str) -> None:
    """Raises an error if values are too large for a float dtype.

    Args:
        value: An array.
        dtype: What it is to be cast to, for good or in each call.
        where: The path of what holds it.
    """
    if value.size == 0 or _largest(dtype) >= _largest(str(value.dtype)):
        return
    finite = value[np.isfinite(value)]
    # Most weights are far from the limits: no cast is needed.
    if float(np.max(np.abs(finite), initial=0)) < _largest(dtype) / 2:
        return
    with np.errstate(over="ignore"):
        lost = ~np.isfinite(finite.astype(_keras.numpy_dtype(dtype)))
    if lost.any():
        raise PrecisionError(
            explain(
                f"{int(lost.sum())} of {value.size} values are too large for {dtype}.",
                where=where,
                expected=f"values up to {_largest(dtype):.4g}",
                received=f"{finite[np.argmax(np.abs(finite))]:.6g}, in {value.dtype}",
                fix="take 'bfloat16' or 'mixed_bfloat16', which reach as far as "
                "float32, or leave this layer as it is with `{'*': policy, "
                "'path/of/this/layer': None}`",
            )
        )


def _is_narrower(old: Any, new: str) -> bool:
    """Tells whether a float dtype cannot hold all values of another."""
    mine, other = _keras.limits(str(old)), _keras.limits(new)
    return bool(other.max < mine.max or other.eps > mine.eps)


def _largest(dtype: str) -> float:
    return float(_keras.limits(dtype).max)
