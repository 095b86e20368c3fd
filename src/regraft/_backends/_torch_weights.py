"""What layers learn on torch that no Keras variable holds."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import keras
import torch

from .._identity import address

# Where a layer lists the values of its Keras variables.
_OF_KERAS = "_torch_params"


def other_weights(operation: Any) -> dict[str, Any]:
    """Returns parameters, and the statistics and the like that modules inside keep."""
    if not isinstance(operation, torch.nn.Module):
        return {}
    # Asked by its own method, a layer of Keras lists its variables first.
    parameters = torch.nn.Module.named_parameters(operation)
    found = {**dict(parameters), **dict(operation.named_buffers())}
    return {n: x for n, x in found.items() if _OF_KERAS not in n.split(".")}


def is_trained(value: Any) -> bool:
    """Tells whether it is a parameter; buffers may be constants."""
    return bool(value.requires_grad)


def write(value: Any, new: Any) -> None:
    """Writes the numbers of a tensor into another one."""
    with torch.no_grad():
        value.copy_(new)


def reset_modules(layer: Any, undrawn: Container[int]) -> list[Any]:
    """Lets the modules on a layer draw their parameters, as their constructors do.

    Those of torch alone: one of the user's may draw those inside it otherwise. And
    those alone whose values are all to be drawn.
    """
    drawn: list[Any] = []
    for name, child in layer.named_children():
        modules = list(child.modules())
        if name == _OF_KERAS or not all(map(_is_of_torch, modules)):
            continue
        values = [*child.parameters(), *child.buffers()]
        if not all(address(value) in undrawn for value in values):
            continue
        # The inner ones first: the outer ones have the last word.
        for module in reversed(modules):
            names = ("reset_parameters", "_reset_parameters")
            found = (getattr(module, name, None) for name in names)
            reset = next(filter(callable, found), None)
            if reset is not None:
                reset()
                drawn += [*module.parameters(), *module.buffers()]
    return drawn


def _is_of_torch(module: Any) -> bool:
    return not isinstance(module, keras.Layer) and type(module).__module__.startswith(
        "torch.nn.modules."
    )
