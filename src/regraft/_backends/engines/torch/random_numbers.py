"""Random numbers of each replica's own.

A stream of Keras (`SeedGenerator`) hands out seeds that differ by replica; those of
replica 0 are the ones that one device draws. A stream without a seed makes `dropout`
draw from torch's own generators instead, which are made to differ here: all of them
begin alike, in every process and on every accelerator.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Any

import keras
import torch
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

from .statistics import running

# An odd number without a pattern: seeds of replicas are far from each other.
_STRIDE = 0x9E3779B9


@lru_cache
def install() -> None:
    """Lets streams ask for the replica that draws, from now on."""
    stream = keras.random.SeedGenerator
    stream.next = _differing(stream.next)


def _differing(plain: Any) -> Any:
    @wraps(plain)
    def next(generator: Any, ordered: bool = True) -> Any:
        seed = plain(generator, ordered)
        share = running()
        if share is None:
            return seed
        share.streams.add(id(generator.state))
        if share.index == 0:
            return seed
        return (seed.to(torch.int64) + share.index * _STRIDE).to(seed.dtype)

    return next


@contextmanager
def global_stream() -> Iterator[set[int]]:
    """Makes Keras's global stream before replicas need it, and unmakes it if none did.

    Yields:
        The place to note the ids of the states of streams that were drawn from.
    """
    used: set[int] = set()
    if global_state.get_global_attribute(GLOBAL_SEED_GENERATOR) is not None:
        yield used
        return
    before = random.getstate()
    stream = keras.random.SeedGenerator(name="global_stream")
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, stream)
    try:
        yield used
    finally:
        if id(stream.state) not in used:
            global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, None)
            random.setstate(before)


@contextmanager
def own_numbers(device: Any, index: int, call: int) -> Iterator[None]:
    """A context in which torch's generator of a device draws for one replica.

    Afterwards it is where it was, so that what else the program draws (the order of
    batches) stays the same in every process.

    Args:
        device: The device.
        index: The number of the replica.
        call: How often the replicas have been called: other numbers each time.
    """
    generator = torch.default_generator
    if device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
    state = generator.get_state()
    seed = zlib.crc32(state.numpy().tobytes())
    generator.manual_seed((seed + (call << 32) + index * _STRIDE) % 2**63)
    try:
        yield
    finally:
        generator.set_state(state)
