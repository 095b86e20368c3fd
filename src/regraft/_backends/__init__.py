"""The only modules that import jax, torch or tensorflow.

Each module speaks for one framework and offers the names of `Framework`. The
active backend's module copies the values of Keras variables. The modules of
the other frameworks are asked for their copiers only if the user's program has
imported that framework already (a text layer runs on TensorFlow whatever the
backend is), so importing regraft never imports a framework.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import keras

_FRAMEWORKS = ("jax", "torch", "tensorflow")

# A copier receives the object and the walk, and returns the copy. It may ask
# the walk for the copy of a part (`walk.copy_of`) and put work off until
# everything has been seen (`walk.later`).
Copier = Callable[[Any, Any], Any]


class Framework(Protocol):
    """What regraft asks of a framework."""

    def shared_types(self) -> tuple[type, ...]:
        """Types whose instances are immutable or belong to the surroundings."""

    def copiers(self) -> dict[type, Copier]:
        """How to copy the framework's own mutable objects, by class."""

    def generators(self) -> dict[type, Callable[[Any, int], object]]:
        """How to seed the framework's own random generators, by class."""

    def copy_values(
        self, values: list[Any], walk: Any, layouts: list[Any] | None = None
    ) -> Iterable[Any]:
        """Copies what Keras variables hold into buffers of their own.

        Args:
            values: The values.
            walk: The walk; `walk.rules.device` says where all copies go, if it is
                not None.
            layouts: How to lay each copy out over a mesh, where `has_layouts()`.
        """

    def cast_value(self, value: Any, dtype: str) -> Any:
        """Returns what a Keras variable holds once its value has another dtype.

        The value belongs to a copy that nobody uses yet, and may be changed.
        """

    def devices(self) -> dict[str, Any]:
        """Returns the devices that are there, by names like `gpu:1`."""

    def has_layouts(self) -> bool:
        """Tells whether values can be laid out over a mesh of devices."""

    def contents(self, obj: Any) -> Any:
        """Returns the class and contents of an opaque object, to be compared.

        None for any other object, which is compared attribute by attribute.
        """

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Tells whether an error says that a device has no memory left."""

    def release(self, values: list[Any]) -> None:
        """Frees buffers at once, after a copy failed half-way."""

    def buffers(self, value: Any) -> set[Any]:
        """Returns what memory a variable's value occupies; nothing if it is not known.

        Two values that share memory share one of these. Where somebody may write to
        it, that is the address at which the memory begins, as for NumPy's arrays.
        """

    def to_array(self, value: Any) -> Any:
        """Returns the exact numbers, or the bits, of a variable's value as an array."""

    def waiting_gradient(self, value: Any) -> Any:
        """Returns the gradient that a variable's value has gathered, or None."""

    def is_mutable(self) -> bool:
        """Tells whether a value can be changed in place."""

    def is_concrete(self, value: Any) -> bool:
        """Tells whether a tensor has a value, i.e. is not part of a trace."""

    def placement(self, value: Any) -> str:
        """Describes where a value lies: its device or its sharding."""

    def fixed_global_rng(self, seed: int = 0) -> AbstractContextManager[None]:
        """A context in which random numbers that belong to no model repeat."""

    def replicas(self, value: Any) -> tuple[Any, ...]:
        """Returns the parts of a value that has one for each replica, or the value."""

    def whole(self, value: Any) -> Any:
        """Returns what the replicas of a value amount to together, or the value."""

    def scope_of(self, strategy: Any) -> AbstractContextManager[None]:
        """A context in which variables are made under a strategy, or under none.

        Whatever scope is around it. Only TensorFlow has strategies.
        """

    def other_weights(self, operation: Any) -> dict[str, Any]:
        """Returns values that an operation may learn beside Keras variables, by name.

        Keras variables may hold some of them, too.
        """

    def is_trained(self, value: Any) -> bool:
        """Tells whether one of them is learned by its gradient."""

    def write(self, value: Any, new: Any) -> None:
        """Gives one of them the numbers of another one."""

    def reset_modules(self, layer: Any, undrawn: Container[int]) -> list[Any]:
        """Lets the framework's own modules on a layer draw their weights anew.

        Args:
            layer: The layer.
            undrawn: The ids of values that are to be drawn; others stay as they are.

        Returns:
            The values that were drawn.
        """

    def lasting(self) -> AbstractContextManager[Any]:
        """A context in which values are made that can be trained, in any mode."""

    def gradients(self, model: Any, inputs: Any) -> list[Any]:
        """Differentiates a loss that any model has."""

    def list_like(self, other: list[Any], items: list[Any]) -> list[Any]:
        """Returns a list of the class by which a layer holds another one."""

    def finish(self, values: list[Any]) -> None:
        """Waits until copies that were only enqueued have really been made."""


def active() -> Framework:
    """Returns the framework of the active Keras backend."""
    return framework(keras.backend.backend())


@lru_cache
def framework(name: str) -> Framework:
    """Returns the framework with the given name."""
    module: Any = import_module(f"{__name__}.{name}")
    return module


def loaded() -> list[Framework]:
    """Returns the frameworks that this program has imported so far."""
    names = [name for name in _FRAMEWORKS if name in sys.modules]
    return [framework(name) for name in names]
