"""Where the random numbers of a copy come from.

A model draws from streams of Keras, from initializers that hold a seed, and from
generators of Python, NumPy or a framework that somebody attached to it.
"""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from . import _backends, _keras
from ._core import Keep
from ._identity import address
from ._walk import Walk

_LARGEST = 2**31 - 1


class Seeds:
    """Hands out seeds: derived from one seed, or drawn like Keras draws them."""

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._count = 0
        self._given: set[int] = set()

    def next(self) -> int:
        """Returns the next seed, between 1 and 2**31 - 1."""
        if self.seed is None:
            return int(_keras.make_default_seed())
        self._count += 1
        return self._derived(self._count)

    def instead_of(self, fixed: int) -> int:
        """Returns what takes the place of a seed; those of its own stay."""
        return fixed if fixed in self._given else self._derived(f"not {fixed}")

    def _derived(self, source: object) -> int:
        digest = hashlib.sha256(f"{self.seed}/{source}".encode()).digest()
        seed = int.from_bytes(digest[:4], "little") % _LARGEST + 1
        self._given.add(seed)
        return seed


def reseed_streams(walk: Walk, seeds: Seeds) -> None:
    """Starts every random stream of the copy anew."""
    with _seeds_said_again(walk):
        for _, stream in walk.seed_generators:
            _restart(stream, seeds)
    _reseed_generators(walk, seeds)


def _restart(stream: Any, seeds: Seeds) -> None:
    _keras.reseed_generator(stream, None if seeds.seed is None else seeds.next())


@contextmanager
def _seeds_said_again(walk: Walk) -> Iterator[None]:
    """Lets layers that say with which seed their stream was made say the new one.

    It is in their configuration, with which a file, or a later clone, makes them again.
    """
    streams = [stream for _, stream in walk.seed_generators]
    before = {address(stream): _keras.seed_of(stream) for stream in streams}
    yield
    for _, operation in walk.operations:
        for held in list(vars(operation).values()):
            old = before.get(address(held))
            if old is not None:
                _keras.say_seed(operation, old, _keras.seed_of(held))


def reseed(walk: Walk, seeds: Seeds) -> None:
    """Gives initializers and random streams other seeds.

    They get them in the order in which their constructors drew them, as when Keras
    makes the layers again one by one: after `set_random_seed` the weights are the same.
    """
    new = walk.known(walk.root)
    roots = [
        x
        for x in (new if isinstance(new, list) else [new])
        if isinstance(x, _keras.Layer)
    ]
    layers = [layer for root in roots for layer in _keras.all_layers(root)]
    streams = {address(stream) for _, stream in walk.seed_generators}
    found = [x for _, x in (*walk.initializers, *walk.seed_generators)]
    wanted = set(map(address, found))
    held = [x for y in layers for x in vars(y).values() if address(x) in wanted]
    fixed = seeds.seed is not None
    with _seeds_said_again(walk):
        for source in {address(x): x for x in held + found}.values():
            if address(source) in streams:
                _restart(source, seeds)
            else:
                _keras.reseed_initializer(source, seeds.next, also_fixed=fixed)
    _reseed_generators(walk, seeds)


def keeps_sources(walk: Walk) -> Keep | None:
    """Returns what to keep of a copy in ghosts, which draw after each other.

    Were its generators, or an initializer that counts its calls, copied with each of
    them, all would draw the same numbers.
    """
    own = [x for _, x in walk.initializers if not _keras.is_of_keras(type(x))]
    sources, keep = set(map(address, _generators(walk) + own)), walk.keep
    if not sources:
        return keep
    return lambda obj: address(obj) in sources or (keep is not None and keep(obj))


def _reseed_generators(walk: Walk, seeds: Seeds) -> None:
    """Seeds generators; without a seed they go on, as nobody knows how they began."""
    if seeds.seed is None:
        return
    ways = _ways_to_seed()
    for generator in _generators(walk):
        seed = next(ways[kind] for kind in ways if isinstance(generator, kind))
        seed(generator, seeds.next())


def _generators(walk: Walk) -> list[Any]:
    """Returns the generators that are the copy's own."""
    kinds = tuple(_ways_to_seed())
    made = {address(x): x for key, x in walk.memo.items() if address(x) != key}
    return [x for x in made.values() if isinstance(x, kinds)]


def _ways_to_seed() -> dict[type, Callable[[Any, int], object]]:
    """Returns how generators are seeded, by class."""
    ways: dict[type, Callable[[Any, int], object]] = {
        random.Random: random.Random.seed,
        np.random.RandomState: np.random.RandomState.seed,
        np.random.Generator: lambda x, seed: _seed_bits(x.bit_generator, seed),
        np.random.BitGenerator: _seed_bits,
    }
    for framework in _backends.loaded():
        ways |= framework.generators()
    return ways


def _seed_bits(generator: Any, seed: int) -> None:
    generator.state = type(generator)(seed).state


@contextmanager
def undisturbed(seed: int | None = None) -> Iterator[None]:
    """Leaves names and global random state as they were found, whatever is drawn."""
    seeds = Seeds(0 if seed is None else seed)
    backend = _backends.active()
    with _keras.fixed_globals(seeds.next), backend.fixed_global_rng(seeds.next()):
        yield


@contextmanager
def seeded(seeds: Seeds) -> Iterator[None]:
    """Leaves names and global random state as they were found.

    Without a seed Python's generator moves on, as when any layer is made.
    """
    with ExitStack() as stack:
        if seeds.seed is None:
            stack.enter_context(_keras.quiet_globals(draws=True))
        else:
            stack.enter_context(_keras.fixed_globals(seeds.next))
            stack.enter_context(_keras.reseeded_draws(seeds.instead_of))
            backend = _backends.active()
            stack.enter_context(backend.fixed_global_rng(seeds.next()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
