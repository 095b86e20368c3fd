"""What a set of devices has in common that one process runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class OneProcess:
    """Devices of one process, of which the first is the nearest.

    Args:
        names: Their names.
    """

    distribution: Any = None
    splits_calls = False
    splits_every_call = False

    def __init__(self, names: list[str]) -> None:
        self.devices = tuple(names)
        self.near = names[0]

    def agree(self, model: Any) -> None:
        """Nothing to do: there is no other process."""

    def adopt(self, model: Any) -> None:
        """Nothing to do: the copy is placed already."""

    def write(self, write: Callable[[], Any]) -> Any:
        """Writes: there is no other process."""
        return write()


class OrdinarySteps:
    """The model's own steps."""


class OneDevice(OneProcess):
    """A single device: the model runs there as it ever did.

    Args:
        name: Its name.
        device: The device.
        framework: What runs the steps, for people.
    """

    steps = OrdinarySteps

    def __init__(self, name: str, device: Any, framework: str) -> None:
        super().__init__([name])
        self.place = device
        self._framework = framework

    def homes(self, variable: Any) -> list[str]:
        """Returns the device."""
        return list(self.devices)

    def describe(self) -> str:
        """Says that nothing is distributed."""
        return f"{self._framework} on one device"
