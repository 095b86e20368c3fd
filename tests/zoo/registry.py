"""The registry: a case is a name, the backends it runs on, and a builder.

A builder makes its model from scratch every time it is called, from the same
seed, so two calls give two equal and unrelated models.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras

BACKENDS = ("jax", "torch", "tensorflow")
SEED = 1234


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and what it is called with.

    Attributes:
        model: A Keras model, layer or `keras.Function`.
        inputs: The single positional argument of the call, or `None` where the
            model cannot be called.
        targets: What `train_on_batch` compares the outputs with, or `None`.
        train: Whether the model may be trained; with mean squared error where
            it does not come compiled.
        training_calls_ok: Whether the call also takes `training=True`.
        name: The name it is registered under.
    """

    model: Any
    inputs: Any = None
    targets: Any = None
    train: bool = False
    training_calls_ok: bool = True
    name: str = ""


Builder = Callable[[], Case]
_REGISTRY: dict[str, tuple[tuple[str, ...], Builder]] = {}


def case(
    name: str, backends: tuple[str, ...] = BACKENDS
) -> Callable[[Builder], Builder]:
    """Registers the builder below it as `name`, on `backends`."""

    def register(build: Builder) -> Builder:
        if name in _REGISTRY:
            raise ValueError(f"There are two cases named {name!r}.")

        @functools.wraps(build)
        def seeded() -> Case:
            keras.utils.set_random_seed(SEED)
            return dataclasses.replace(build(), name=name)

        _REGISTRY[name] = backends, seeded
        return seeded

    return register


def cases(backend: str | None = None) -> Iterator[tuple[str, Builder]]:
    """Yields `(name, builder)` of each case that runs on `backend`."""
    backend = backend or keras.backend.backend()
    for name, (backends, build) in _REGISTRY.items():
        if backend in backends:
            yield name, build


def learns(model: Any, inputs: Any, targets: Any, **flags: bool) -> Case:
    """A case that may be trained."""
    return Case(model, inputs, targets, train=True, **flags)


def compile_quickly(model: Any, optimizer: Any = "sgd") -> None:
    """Compiles `model` with mean squared error, the way that starts soonest."""
    eager = keras.backend.backend() != "jax"
    model.compile(optimizer, "mse", run_eagerly=eager)
