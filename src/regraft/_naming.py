"""Names for the operations that Keras adds to a graph while it is replayed.

A layer that finds a mask, or passes one on, calls operations of its own accord
(`not_equal`, `any`). Keras names them by counting, so in a replayed graph they
come out with other names, or even with names that are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _keras
from ._identity import address


def follow_masks(
    masks: list[tuple[Any, Any]], tensors: dict[int, Any], made: dict[int, Any]
) -> None:
    """Names operations that compute masks as they were named in the old graph.

    Args:
        masks: The old and the new mask of each tensor, or None.
        tensors: What each old tensor became; masks are added to it.
        made: What each old operation became; those of masks are added to it.
    """
    while masks:
        old, new = masks.pop()
        if old is None or new is None or address(old) in tensors:
            continue
        tensors[address(old)] = new
        node, other = _keras.producer(old), _keras.producer(new)
        if node is None or other is None:
            continue
        before, after = node.operation, other.operation
        if type(before) is type(after) and not isinstance(after, _keras.Layer):
            _keras.set_name(after, before.name)
            made[address(before)] = after
            masks += zip(node.input_tensors, other.input_tensors, strict=False)


def name_apart(outputs: list[Any], made: Mapping[int, Any], copied: list[Any]) -> None:
    """Gives operations that Keras named itself names that are not taken.

    Keras counts from the start in each program; a model that was loaded brings
    names of an earlier one.

    Args:
        outputs: The outputs of the new graph.
        made: Operations that were made on purpose: those keep their names.
        copied: Nodes that were copied with all that is behind them, names included.
    """
    copies = {address(new) for new in made.values()}
    found = _keras.operations_behind(outputs, copied)
    taken = {operation.name for operation in found if address(operation) in copies}
    taken |= {node.operation.name for node in copied}
    for operation in found:
        if address(operation) in copies or isinstance(operation, _keras.Layer):
            continue
        name, count = operation.name, 0
        while name in taken:
            count += 1
            name = f"{operation.name}_{count}"
        taken.add(name)
        _keras.set_name(operation, name)
