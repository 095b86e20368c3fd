"""Batches whose rows the devices do not divide.

The shards of an argument of a program must be equal, but inside of a program XLA splits
any number of rows, into shares of `ceil(rows / devices)`; the last are shorter or empty
(7 rows over 3 devices are 3, 3 and 1). What they lack it fills in, and leaves out of
whatever is computed over rows. So a batch is handed over filled up with repetitions of
its last row, which only make the shards equal: the program cuts them off before it
computes anything, and no row moves for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.extend.core import jaxprs_in_params


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["filled"],
    meta_fields=["count", "sharding"],
)
@dataclass(frozen=True)
class Uneven:
    """A part of a batch that has been filled up.

    Attributes:
        filled: The rows, and repetitions of the last one, laid out over the devices.
        count: The number of rows: a program is compiled for it.
        sharding: How `filled` is laid out.
    """

    filled: Any
    count: int
    sharding: Any


def fill_up(rows: Any, devices: int) -> Any:
    """Repeats the last row until the devices divide the rows."""
    missing = -len(rows) % devices
    numpy: Any = np if isinstance(rows, np.ndarray) else jnp
    return numpy.concatenate([rows, numpy.repeat(rows[-1:], missing, axis=0)])


def cut(data: Any) -> Any:
    """Returns a batch, inside of a program, as it was before it was filled up."""

    def cut_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, Uneven):
            return leaf
        rows = jax.lax.slice_in_dim(leaf.filled, 0, leaf.count)
        return jax.lax.with_sharding_constraint(rows, leaf.sharding)

    return keras.tree.map_structure(cut_leaf, data)


class Program:
    """A step of Keras, as far as uneven batches go.

    Args:
        step: A jitted function, or a plain one if it is not to be compiled.
    """

    def __init__(self, step: Any) -> None:
        self._trace = getattr(step, "trace", None)
        self._known: dict[Any, bool] = {}

    def is_compiled(self) -> bool:
        """Tells whether XLA gets to see the step, and so can split its batches."""
        return self._trace is not None

    def takes(self, state: Any, data: Any) -> bool:
        """Tells whether XLA can split what is computed with a batch.

        Looking at the program costs nothing: JAX keeps it for the call.

        Args:
            state: What else the step is given.
            data: The batch, filled up.
        """
        leaves, structure = jax.tree_util.tree_flatten(data)
        key = (structure, *((leaf.shape, leaf.dtype) for leaf in leaves))
        if key not in self._known:
            assert self._trace is not None
            self._known[key] = not _ends_xla(self._trace(state, data).jaxpr.jaxpr)
        return self._known[key]


def _ends_xla(program: Any) -> bool:
    """Tells whether XLA would end the process, instead of splitting a program.

    It does so for a scatter into uneven shares by indices that are not `int32`: it
    fills those up with an `int32` (`spmd_partitioner_util.h: Check failed`). The
    gradient of `sort` is one.
    """
    for equation in program.eqns:
        if equation.primitive.name.startswith("scatter"):
            if equation.invars[1].aval.dtype != np.int32:
                return True
        elif any(map(_ends_xla, jaxprs_in_params(equation.params))):
            return True
    return False
