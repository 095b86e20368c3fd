"""Tensors in plain attributes of layers, which no variable holds.

Constants (what `Normalization` has learned) lie on one device and are brought to the
replica's; tensors of a call are refused.
"""

from __future__ import annotations

from typing import Any

import keras
import torch
from torch.overrides import TorchFunctionMode

from ...._errors import ReplicaError, explain


class ComeHere(TorchFunctionMode):
    """A context in which every operation brings its tensors to one device."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Runs an operation on tensors that are there."""
        args, kwargs = keras.tree.map_structure(self._bring, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _bring(self, value: Any) -> Any:
        is_away = isinstance(value, torch.Tensor) and value.device != self._device
        with torch._C.DisableTorchFunction():
            return value.to(self._device) if is_away else value


class AttributeWatch:
    """Refuses layers whose attributes would mix the tensors of several replicas.

    All replicas of a process run the same layers. A tensor that `call` writes to an
    attribute would be overwritten by the next replica while the first still reads it,
    and afterwards be that of some rows, where a training step expects all.

    Args:
        model: The model, which has not been called yet.
    """

    def __init__(self, model: Any) -> None:
        self._layers = model._flatten_layers()
        self._before = [_tensors(layer) for layer in self._layers]

    def has_constants(self) -> bool:
        """Tells whether layers hold tensors that are not variables."""
        return any(self._before)

    def check(self) -> None:
        """Looks whether a layer has got a tensor by now."""
        for layer, before in zip(self._layers, self._before, strict=True):
            for name, ids in _tensors(layer).items():
                if ids != before.get(name):
                    raise ReplicaError(
                        explain(
                            "A layer keeps a tensor of its call in an attribute.",
                            where=f"{layer.name}.{name}",
                            expected="tensors that are passed and returned: a "
                            "replica has some of the rows",
                            received=f"another tensor in `{name}` after `call` began",
                            fix="return the tensor, or hold it in a variable",
                        )
                    )


def _tensors(layer: Any) -> dict[str, list[int]]:
    """Returns the ids of the tensors in each attribute."""
    found = {}
    for name, value in vars(layer).items():
        items = value.values() if isinstance(value, dict) else value
        if not isinstance(value, dict | list | tuple):
            items = (value,)
        ids = [id(item) for item in items if isinstance(item, torch.Tensor)]
        if ids:
            found[name] = ids
    return found
