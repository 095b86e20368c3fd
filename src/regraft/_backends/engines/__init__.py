"""How a model runs on many devices: one engine for each framework.

An engine places the variables of a copy and hands each batch to the framework's own
machinery: shardings on JAX, `tf.distribute` on TensorFlow, and on torch autograd across
devices, or DDP across processes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import keras


class Replicas(Protocol):
    """A set of devices, and what running a model on all of them takes.

    Attributes:
        devices: The names of the devices, in the order of the replicas.
        place: Where the values of the copy go: what `Rules.device` may be.
        distribution: A Keras distribution that lays the copy out, or None.
        steps: A class that is put before the model's own class. Its methods run
            each batch on all devices.
        near: The name of a device of this process, for a gathered copy.
        splits_calls: Whether the model is called on a part of the rows at a time.
        splits_every_call: Whether that is so outside of steps, too.
    """

    devices: tuple[str, ...]
    near: str
    place: Any
    distribution: Any
    steps: type
    splits_calls: bool
    splits_every_call: bool

    def agree(self, model: Any) -> None:
        """Refuses a model that is not the same in every process."""

    def adopt(self, model: Any) -> None:
        """Prepares the placed copy, whose class has `steps` in front by now."""

    def homes(self, variable: Any) -> list[str]:
        """Returns the devices on which the value of a variable lies."""

    def write(self, write: Callable[[], Any]) -> Any:
        """Calls `write` in one process, while all others wait; they get None."""

    def describe(self) -> str:
        """Says in a few words what runs the batches."""


class Engine(Protocol):
    """What regraft asks of a framework that runs a model on many devices."""

    def default_devices(self) -> list[str]:
        """Returns the names of the devices that are meant by "all"."""

    def repeats(self) -> bool:
        """Tells whether several replicas may lie on one device."""

    def replicas(
        self, names: list[str], devices: list[Any], merge: Any, home: Any
    ) -> Replicas:
        """Plans for running a model on several devices.

        Args:
            names: The names of the devices.
            devices: The devices, as `Framework.devices()` has them.
            merge: The device on which the results of replicas are put together.
            home: The device on which the weights are kept between steps, or None
                for where the engine likes them best.
        """


def active() -> Engine:
    """Returns the engine of the active Keras backend."""
    return _engine(keras.backend.backend())


@lru_cache
def _engine(name: str) -> Engine:
    module: Any = import_module(f"{__name__}.{name}")
    return module
