"""Where a copy lies: on one device, or laid out over a mesh of devices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from . import _backends, _keras
from ._errors import UsageError, UsageTypeError, did_you_mean, explain
from ._identity import address


def find_device(spec: Any, argument: str = "device") -> Any:
    """Returns the device of the active backend that `spec` names.

    Args:
        spec: `"cpu"`, `"gpu:1"`, `"cuda:1"`, `"/GPU:1"`, or a device of the
            backend itself.
        argument: The argument that it was given as, for a message.
    """
    devices = _backends.active().devices()
    if not isinstance(spec, str):
        for device in devices.values():
            if type(device) is type(spec) and device == spec:
                return device
    name = _normal_name(str(spec))
    if name not in devices:
        raise UsageError(
            explain(
                f"There is no device {spec!r}.",
                where=f"argument `{argument}`",
                expected=f"one of {', '.join(devices)}",
                received=repr(spec),
                fix="choose a device that is there, or start the program with more "
                f"devices.{did_you_mean(name, devices)}",
            )
        )
    return devices[name]


def device_name(device: Any) -> str:
    """Returns the name of a device that `find_device` found."""
    devices = _backends.active().devices()
    return next(name for name, known in devices.items() if known == device)


def _normal_name(name: str) -> str:
    """Writes the names that frameworks give a device in one way: `gpu:1`."""
    kind, _, number = name.lower().rpartition("device:")[2].strip("/").partition(":")
    return f"{'gpu' if kind == 'cuda' else kind}:{number or 0}"


class Layouts:
    """The layout that a `keras.distribution.Distribution` gives each variable.

    Args:
        distribution: A `DataParallel` or `ModelParallel`.
    """

    def __init__(self, distribution: Any) -> None:
        if not isinstance(distribution, _keras.Distribution):
            kind = type(distribution).__name__
            raise UsageTypeError(
                explain(
                    "`distribution` must be a Keras distribution.",
                    where="argument `distribution`",
                    expected="a `keras.distribution.DataParallel` or `ModelParallel`",
                    received=f"{distribution!r} (of type {kind})",
                    fix="pass for example `keras.distribution.DataParallel()`",
                )
            )
        if not _backends.active().has_layouts():
            raise UsageError(
                explain(
                    "Only the JAX backend lays variables out over a mesh.",
                    where="argument `distribution`",
                    expected="the JAX backend",
                    received=f"the {_keras.backend_name()} backend",
                    fix="run with `KERAS_BACKEND=jax`, or use `device=`",
                )
            )
        self.distribution = distribution

    def assign(
        self, variables: Iterable[tuple[Any, Any]], optimizers: Iterable[Any]
    ) -> dict[int, Any]:
        """Decides on the layout of every variable, by the id of the original.

        What an optimizer keeps for a variable lies as the variable lies.

        Args:
            variables: Pairs (original, copy).
            optimizers: The original optimizers.
        """
        found = {}
        for old, new in variables:
            layout = _keras.layout_of(self.distribution, new)
            self._check(old, layout)
            found[address(old)] = layout
        for optimizer in optimizers:
            for slot, variable in _keras.slots_with_variables(optimizer):
                if address(slot) in found and address(variable) in found:
                    found[address(slot)] = found[address(variable)]
        return found

    def _check(self, variable: Any, layout: Any) -> None:
        axes, mesh = layout.axes, layout.device_mesh
        sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
        shape = tuple(variable.shape)
        fits = len(axes) == len(shape) and all(
            axis is None or size % math.prod(sizes[a] for a in _names(axis)) == 0
            for size, axis in zip(shape, axes, strict=True)
        )
        if not fits:
            raise UsageError(
                explain(
                    "The layout of a variable does not divide its shape.",
                    where=variable.path,
                    expected=f"a shape that the mesh {sizes} divides along {axes}",
                    received=f"shape {shape}",
                    fix="give this variable another layout in the `LayoutMap`, or "
                    "take a mesh whose axes divide its dimensions",
                )
            )


def _names(axis: Any) -> tuple[str, ...]:
    return axis if isinstance(axis, tuple) else (axis,)
