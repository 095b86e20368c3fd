"""One device of one process: the model runs there as it ever did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class OrdinarySteps:
    """The model's own steps."""


class OneDevice:
    """A single device.

    Args:
        name: Its name.
        device: The device.
        framework: What runs the steps, for people.
    """

    distribution = None
    splits_calls = False
    splits_every_call = False
    steps = OrdinarySteps

    def __init__(self, name: str, device: Any, framework: str) -> None:
        self.devices = (name,)
        self.near = name
        self.place = device
        self._framework = framework

    def agree(self, model: Any) -> None:
        """Nothing to do: there is no other process."""

    def adopt(self, model: Any) -> None:
        """Nothing to do: the copy is placed already."""

    def homes(self, variable: Any) -> list[str]:
        """Returns the device."""
        return list(self.devices)

    def write(self, write: Callable[[], Any]) -> Any:
        """Writes: there is no other process."""
        return write()

    def describe(self) -> str:
        """Says that nothing is distributed."""
        return f"{self._framework} on one device"
