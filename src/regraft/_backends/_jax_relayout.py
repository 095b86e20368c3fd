"""JAX arrays from one layout to another, while no device gets all of an array.

`jax.device_put` moves shards from device to device where the new ones are the old ones,
and cuts them out of an array that lies on one device. In all other cases it brings the
whole array to the host first. Here each new shard is put together on the host from one
old shard at a time. A large array does not come to the host, but is exchanged between
the devices by a program of XLA. XLA gathers the array on every device for some pairs of
layouts: the program is read first, and not used if it does.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Bytes from which on an exchange is worth a compilation: that takes a tenth of a second
# and more for each shape.
LARGE = 2**26

Box = tuple[tuple[int, int], ...]  # Where a shard begins and ends, in each dimension.


def is_needed(value: Any, sharding: Any) -> bool:
    """Tells whether `jax.device_put` would gather an array to lay it out."""
    if value.sharding.num_devices == 1 or value.sharding == sharding:
        return False
    if not (value.is_fully_addressable and sharding.is_fully_addressable):
        return False
    if value.is_fully_replicated and sharding.is_fully_replicated:
        return False
    if jnp.issubdtype(value.dtype, jax.dtypes.extended):  # Keys are no numbers.
        return False
    wanted = _boxes(value.shape, sharding)
    return not wanted <= _boxes(value.shape, value.sharding)


def laid_out(value: Any, sharding: Any) -> Any:
    """Returns a copy of an array in another layout."""
    is_large = value.nbytes >= LARGE
    if is_large and value.sharding._device_assignment == sharding._device_assignment:
        exchange = _exchange(value.aval, value.sharding, sharding)
        if exchange is not None:
            return exchange(value)
    return _through_the_host(value, sharding, kept=1 if is_large else None)


@lru_cache
def _exchange(aval: Any, source: Any, target: Any) -> Any:
    """Returns the program that lays an array out anew; None if it gathers."""
    given = jax.ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=source, weak_type=aval.weak_type
    )
    program = jax.jit(jnp.copy, out_shardings=target).lower(given).compile()
    shapes = re.findall(r"\w\[([\d,]+)\]", program.as_text())
    largest = max(math.prod(map(int, shape.split(","))) for shape in shapes)
    allowed = max(math.prod(s.shard_shape(aval.shape)) for s in (source, target))
    return program if largest <= allowed else None


def _through_the_host(value: Any, sharding: Any, *, kept: int | None) -> Any:
    """Puts new shards together on the host.

    Args:
        value: The array.
        sharding: Its new layout.
        kept: How many old shards may stay on the host for the next new one.
    """
    shards = {_box(s.index, value.shape): s.data for s in value.addressable_shards}
    host = jax.local_devices(backend="cpu")[0]

    @lru_cache(maxsize=kept)
    def on_host(box: Box) -> Any:
        data = shards[box]
        if data.device.platform != "cpu":
            data = jax.device_put(
                data, host
            )  # The array would keep what it is read as.
        return np.asarray(data)

    def shard_at(index: Any) -> Any:
        box = _box(index, value.shape)
        whole = np.empty([stop - start for start, stop in box], value.dtype)
        for other in shards:
            common = _common(box, other)
            if common is not None:
                whole[_within(common, box)] = on_host(other)[_within(common, other)]
        return whole

    return jax.make_array_from_callback(value.shape, sharding, shard_at)


def _boxes(shape: Any, sharding: Any) -> set[Box]:
    indices = sharding.devices_indices_map(shape).values()
    return {_box(index, shape) for index in indices}


def _box(index: Any, shape: Any) -> Box:
    pairs = zip(index, shape, strict=True)
    return tuple(part.indices(size)[:2] for part, size in pairs)


def _common(one: Box, other: Box) -> Box | None:
    """Returns what two boxes share, if they do."""
    pairs = zip(one, other, strict=True)
    found = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in pairs)
    return found if all(start < stop for start, stop in found) else None


def _within(part: Box, box: Box) -> tuple[slice, ...]:
    """Returns where a part lies in a box."""
    pairs = zip(part, box, strict=True)
    return tuple(slice(a - start, b - start) for (a, b), (start, _) in pairs)
