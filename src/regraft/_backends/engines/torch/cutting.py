"""Batches of torch tensors: cut into rows for the replicas, and joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import torch

from .... import _keras
from ...._errors import ReplicaError, UsageError, explain


def batch_size(inputs: Any) -> int:
    """Returns the rows of the first tensor that has any; 0 if none has."""
    for leaf in keras.tree.flatten(inputs):
        if _is_batched(leaf):
            return int(leaf.shape[0])
    return 0


def shares(batch: int, replicas: int) -> list[slice]:
    """Returns the rows of each replica; of fewer replicas if rows are few.

    All take the same number of rows and the last takes the rest besides: 7 rows
    over 3 replicas are 2, 2 and 3.
    """
    count = min(batch, replicas)
    step = batch // count
    stops = [step * (i + 1) for i in range(count - 1)] + [batch]
    return [slice(step * i, stop) for i, stop in enumerate(stops)]


def cut(inputs: Any, rows: slice, batch: int, device: Any) -> Any:
    """Returns some rows of every tensor in a structure, on a device.

    What has no rows (a number, a flag, a tensor that has one row for all) is given
    whole. Masks that travel with tensors are cut as well.
    """

    def cut_leaf(leaf: Any) -> Any:
        if not _is_batched(leaf):
            return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf
        if leaf.shape[0] not in (1, batch):
            raise UsageError(
                explain(
                    "The inputs of a replicated model differ in their rows.",
                    where=f"a tensor of shape {tuple(leaf.shape)}",
                    expected=f"{batch} rows, as in the first input, or one for all",
                    received=f"{leaf.shape[0]} rows",
                    fix="give every input one row for each example, or call the "
                    "`template`, which runs on one device",
                )
            )
        part = leaf[rows] if leaf.shape[0] == batch else leaf
        if not isinstance(leaf, torch.Tensor):
            return part
        new = part.to(device)
        mask = _keras.mask_of(leaf)
        if mask is not None:
            _keras.set_mask(new, cut_leaf(mask))
        return new

    return keras.tree.map_structure(cut_leaf, inputs)


def join(parts: Sequence[Any], sizes: Sequence[int], device: Any) -> Any:
    """Puts the outputs of replicas together, on a device.

    Args:
        parts: The outputs of each replica.
        sizes: The number of rows that each was given.
        device: Where the results are to lie.
    """

    def join_leaves(*leaves: Any) -> Any:
        if not all(has_rows(x, n) for x, n in zip(leaves, sizes, strict=True)):
            return _only(leaves, device)
        whole = torch.cat([leaf.to(device) for leaf in leaves])
        masks = [_keras.mask_of(leaf) for leaf in leaves]
        if all(mask is not None for mask in masks):
            _keras.set_mask(whole, torch.cat([mask.to(device) for mask in masks]))
        return whole

    return keras.tree.map_structure(join_leaves, *parts)


def has_rows(leaf: Any, count: int) -> bool:
    """Tells whether an output has one row for each of `count` rows of the input."""
    is_tensor = isinstance(leaf, torch.Tensor) and leaf.ndim > 0
    return is_tensor and leaf.shape[0] == count


def differing(received: str) -> ReplicaError:
    """Returns the error for an output that cannot be joined."""
    return ReplicaError(
        explain(
            "An output of a replicated model has no rows, and differs by replica.",
            where="the outputs of the call",
            expected="one row for each row of the input, or the same value on "
            "every replica",
            received=received,
            fix="return a value for each row, and reduce it where the loss is computed",
        )
    )


def _is_batched(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor | np.ndarray) and leaf.ndim > 0


def _only(leaves: Sequence[Any], device: Any) -> Any:
    """Returns an output that has no rows: the same on every replica."""
    first = leaves[0]
    if not isinstance(first, torch.Tensor):
        if any(leaf is not first and leaf != first for leaf in leaves):
            raise differing(", ".join(map(repr, leaves)))
        return first
    moved = [leaf.to(device) for leaf in leaves]
    if not all(torch.equal(moved[0], other) for other in moved):
        raise differing(
            "tensors of shapes " + ", ".join(str(tuple(x.shape)) for x in leaves)
        )
    return moved[0]
