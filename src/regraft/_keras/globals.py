"""Global state of Keras, which a copy must leave as it found it."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
from keras.src.backend import random as backend_random
from keras.src.backend.common import global_state

from .._identity import address


class quiet_globals:
    """A context in which Keras's name counters and global RNG stay unchanged.

    Keras seeds its global generator, when it first needs one, from Python's. That is
    one for all threads, which therefore wait for each other: what one of them found is
    not to be what another one has seeded.

    Args:
        draws: Whether Python's generator moves on, as it does whenever layers are made
            that draw their weights from it.
    """

    _TURN = threading.RLock()
    _NAMES = ("object_name_uids", "global_seed_generator", "autoname_prefix")

    def __init__(self, *, draws: bool = False) -> None:
        self._draws = draws

    def __enter__(self) -> quiet_globals:
        self._TURN.acquire()
        self._saved = {n: global_state.get_global_attribute(n) for n in self._NAMES}
        self._random = random.getstate()
        counters = self._saved["object_name_uids"]
        if counters is not None:
            working = type(counters)(counters.default_factory, counters)
            global_state.set_global_attribute("object_name_uids", working)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._draws:
            random.setstate(self._random)
        for name, value in self._saved.items():
            global_state.set_global_attribute(name, value)
        self._TURN.release()


class fixed_globals(quiet_globals):
    """A context in which global generators draw the same numbers each time.

    Those of Python, numpy and Keras; they are found again as they were left. A backend
    has others, see its `fixed_global_rng`.

    Args:
        next_seed: Returns a seed for each of them.
    """

    def __init__(self, next_seed: Callable[[], int] = lambda: 0) -> None:
        super().__init__()
        self._next_seed = next_seed

    def __enter__(self) -> fixed_globals:
        super().__enter__()
        self._numpy = np.random.get_state()
        random.seed(self._next_seed())
        np.random.seed(self._next_seed())
        set_global_seed_generator(keras.random.SeedGenerator(self._next_seed()))
        return self

    def __exit__(self, *details: object) -> None:
        np.random.set_state(self._numpy)
        super().__exit__(*details)


@contextlib.contextmanager
def outside_name_scopes() -> Iterator[None]:
    """A context that is in no name scope, of which paths of variables would tell."""
    name = "name_scope_stack"
    scopes = global_state.get_global_attribute(name)
    global_state.set_global_attribute(name, None)
    try:
        yield
    finally:
        global_state.set_global_attribute(name, scopes)


@contextlib.contextmanager
def reseeded_draws(instead_of: Callable[[int], int]) -> Iterator[None]:
    """A context in which this thread draws with other seeds than it is told to.

    A `build()` that is run again makes initializers and streams with the seeds that are
    written in it. Nobody holds those, so that only their use can be changed.

    Args:
        instead_of: Returns what takes the place of a seed.
    """
    draw, thread = backend_random.draw_seed, threading.get_ident()
    streams: dict[Any, Any] = {}

    def draw_seed(seed: Any) -> Any:
        if threading.get_ident() != thread:
            return draw(seed)
        if isinstance(seed, keras.random.SeedGenerator):
            fixed = seed._initial_seed
            if fixed is None or instead_of(fixed) == fixed:
                return draw(seed)
            if seed not in streams:
                streams[seed] = keras.random.SeedGenerator(instead_of(fixed))
            return draw(streams[seed])
        return draw(instead_of(seed) if isinstance(seed, int) else seed)

    backend_random.draw_seed = draw_seed
    try:
        yield
    finally:
        backend_random.draw_seed = draw


@contextlib.contextmanager
def unchanged(variables: Iterable[Any]) -> Iterator[None]:
    """A context in which this thread cannot assign to some variables.

    What is built again may hold layers that are not, and write to their weights.
    """
    kind: Any = next(x for x in keras.Variable.__mro__ if "assign" in vars(x))
    assign, thread = kind.assign, threading.get_ident()
    protected = {address(variable) for variable in variables}

    def assign_to_others(self: Any, value: Any) -> Any:
        if address(self) in protected and threading.get_ident() == thread:
            return value
        return assign(self, value)

    if protected:
        kind.assign = assign_to_others
    try:
        yield
    finally:
        if protected:
            kind.assign = assign


def global_seed_generator() -> Any:
    """Returns the generator from which unseeded random ops draw; None if none did."""
    return global_state.get_global_attribute("global_seed_generator")


def set_global_seed_generator(generator: Any) -> None:
    """Puts a generator where unseeded random ops look for one."""
    global_state.set_global_attribute("global_seed_generator", generator)


def backend_name() -> str:
    """Returns the name of the active backend."""
    return str(keras.backend.backend())
