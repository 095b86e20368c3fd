"""JAX: variables on every device of a mesh, batches sharded over it.

What happens to a batch: its rows are spread evenly over the devices
(`jax.sharding`), and one program computes the step for the batch as a whole; XLA
inserts the communication. So losses, metrics, batch statistics and the numbers
that dropout draws are those of the whole batch, as on one device.

A batch whose rows the devices do not divide is split by XLA, into shares of
`ceil(rows / devices)` rows: 7 rows over 3 devices are 3, 3 and 1, and 2 rows are 1, 1
and none. No device has more to do than with shares of 2, 2 and 3, which a sharding
cannot express: its shares are equal but for the last. The results of such a batch lie
on every device. See `uneven`. A batch is given to every device whole (the same
numbers, without the gain) if it has one row, if the step is not compiled
(`run_eagerly=True`, `jit_compile=False`), or if XLA cannot split the program unevenly.

With several processes (`keras.distribution.initialize`) each is given the same
data, takes its own rows of every batch, and ends with the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from ...._errors import UsageError, explain
from .._agreement import (
    check_batches,
    check_models,
    digest_of_batch,
    digest_of_model,
)
from .._one_process import OneDevice
from . import uneven


def default_devices() -> list[str]:
    """Returns all devices of the default platform, those of other processes too."""
    return [_name(device) for device in jax.devices()]


def repeats() -> bool:
    """A mesh has each device once."""
    return False


def replicas(
    names: list[str], devices: list[Any], merge: Any, home: Any
) -> OneDevice | MeshReplicas:
    """Plans a mesh. Results stay sharded, weights lie on every device."""
    if jax.process_count() > 1:
        _check_processes(names, devices)
    elif len(devices) == 1:
        return OneDevice(names[0], devices[0], "JAX")
    return MeshReplicas(names, devices)


def _check_processes(names: list[str], devices: list[Any]) -> None:
    taking_part = {device.process_index for device in devices}
    absent = set(range(jax.process_count())) - taking_part
    if absent:
        raise UsageError(
            explain(
                "A process has none of the devices.",
                where=f"argument `devices`, rank {jax.process_index()}",
                expected="at least one device of each process",
                received=f"{', '.join(names)}; none of process "
                f"{', '.join(map(str, sorted(absent)))}",
                fix="leave `devices` out to take all, or name some of each process",
            )
        )


def _name(device: Any) -> str:
    return f"{device.platform.replace('cuda', 'gpu')}:{device.id}"


class _Rows(keras.distribution.DataParallel):
    """Splits rows that the devices divide, and gives others to every device."""

    def get_data_layout(self, data_shape: Any) -> Any:
        divides = bool(data_shape) and data_shape[0] % self.num_model_replicas == 0
        axes = ["batch" if divides else None, *[None] * len(data_shape[1:])]
        return keras.distribution.TensorLayout(
            axes[: len(data_shape)], self.device_mesh
        )


class MeshReplicas:
    """The devices of a one-dimensional mesh."""

    place = None
    splits_calls = False
    splits_every_call = False

    def __init__(self, names: list[str], devices: list[Any]) -> None:
        self.devices = tuple(names)
        mine = [d.process_index == jax.process_index() for d in devices]
        self.near = names[mine.index(True)]
        self.steps = ShardedSteps
        mesh = keras.distribution.DeviceMesh((len(devices),), ["batch"], devices)
        self.distribution = _Rows(device_mesh=mesh, auto_shard_dataset=False)
        whole = NamedSharding(mesh.backend_mesh, PartitionSpec())
        # Made once: JAX compiles for each function that it is given.
        self._bring_here = jax.jit(lambda tree: tree, out_shardings=whole)

    def agree(self, model: Any) -> None:
        """Compares the digests of all processes."""
        if jax.process_count() > 1:
            digests = _of_all_processes(digest_of_model(model))
            check_models(model, digests, jax.process_index())

    def adopt(self, model: Any) -> None:
        """Nothing to do: the copy is laid out already."""

    def homes(self, variable: Any) -> list[str]:
        """Returns the devices of the shards of a variable's value."""
        return [_name(d) for d in variable.value.sharding._device_assignment]

    def write(self, write: Callable[[], Any]) -> Any:
        """Lets the first process write, while the others wait."""
        try:
            return write() if jax.process_index() == 0 else None
        finally:
            if jax.process_count() > 1:
                multihost_utils.sync_global_devices("regraft.write")

    def describe(self) -> str:
        """Says how many devices and processes there are."""
        processes = jax.process_count()
        suffix = f" of {processes} processes" if processes > 1 else ""
        return f"jax.sharding over {len(self.devices)} device(s){suffix}"

    def check_batch(self, data: Any, name: str) -> None:
        """Refuses a batch that is not the same in every process.

        Args:
            data: The batch.
            name: The name of the model.
        """
        if jax.process_count() > 1:
            arrays = filter(_is_array, keras.tree.flatten(data))
            digests = _of_all_processes(digest_of_batch(map(np.asarray, arrays)))
            check_batches(name, digests, jax.process_index())

    def divide(self, data: Any) -> bool:
        """Tells whether the devices divide the rows of a batch, or it has but one."""
        return not any(
            _is_array(leaf) and self._is_uneven(leaf.shape)
            for leaf in keras.tree.flatten(data)
        )

    def spread(self, data: Any, unevenly: bool = False) -> Any:
        """Lays a batch out over the mesh.

        Args:
            data: The batch.
            unevenly: Whether to split rows that the devices do not divide, too.
        """

        def spread_leaf(leaf: Any) -> Any:
            if not _is_array(leaf):
                return leaf
            if not unevenly or not self._is_uneven(leaf.shape):
                return self._put(leaf)
            filled = self._put(uneven.fill_up(leaf, len(self.devices)))
            return uneven.Uneven(filled, len(leaf), filled.sharding)

        return keras.tree.map_structure(spread_leaf, data)

    def _is_uneven(self, shape: Any) -> bool:
        return bool(shape) and shape[0] > 1 and shape[0] % len(self.devices) != 0

    def _put(self, leaf: Any) -> Any:
        sharding = self.distribution.get_data_layout(leaf.shape).backend_layout
        if jax.process_count() == 1:
            return jax.device_put(leaf, sharding)
        rows = np.asarray(leaf)
        return jax.make_array_from_callback(
            rows.shape, sharding, lambda index: rows[index]
        )

    def unite(self, results: Any) -> Any:
        """Brings results of other processes here, so that they can be read."""
        if jax.process_count() == 1:
            return results
        return self._bring_here(results)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array)


def _of_all_processes(digest: bytes) -> list[bytes]:
    found = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    return [row.tobytes() for row in np.asarray(found)]


def _as_they_are(iterator: Any) -> Iterator[Any]:
    """Lets Keras look at a batch without spreading it, for it may be sparse."""
    batches = iter(iterator)
    distribution = keras.distribution.distribution()
    while True:
        keras.distribution.set_distribution(None)
        try:
            batch = next(batches)
        except StopIteration:
            return
        finally:
            keras.distribution.set_distribution(distribution)
        yield batch


class ShardedSteps:
    """Runs each step of a Keras JAX trainer on batches that lie on a mesh."""

    replicas: MeshReplicas

    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Compiles; what that makes is laid out over the mesh."""
        with self.replicas.distribution.scope():
            return super().compile(*args, **kwargs)  # type: ignore[misc]

    def _symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        batches = None if iterator is None else _as_they_are(iterator)
        with self.replicas.distribution.scope():
            return super()._symbolic_build(batches, data_batch)  # type: ignore[misc]

    def make_train_function(self: Any, force: bool = False) -> Any:
        """Tells the compiler that state stays on every device."""
        with self.replicas.distribution.scope():
            return super().make_train_function(force)  # type: ignore[misc]

    def make_test_function(self: Any, force: bool = False) -> Any:
        """Tells the compiler that state stays on every device."""
        with self.replicas.distribution.scope():
            return super().make_test_function(force)  # type: ignore[misc]

    def make_predict_function(self: Any, force: bool = False) -> Any:
        """Tells the compiler that state stays on every device."""
        with self.replicas.distribution.scope():
            return super().make_predict_function(force)  # type: ignore[misc]

    def train_step(self: Any, state: Any, data: Any) -> Any:
        """Trains on the rows of a batch, without those that filled it up."""
        return super().train_step(state, uneven.cut(data))  # type: ignore[misc]

    def test_step(self: Any, state: Any, data: Any) -> Any:
        """Evaluates the rows of a batch, without those that filled it up."""
        return super().test_step(state, uneven.cut(data))  # type: ignore[misc]

    def predict_step(self: Any, state: Any, data: Any) -> Any:
        """Predicts for the rows of a batch, without those that filled it up."""
        return super().predict_step(state, uneven.cut(data))  # type: ignore[misc]

    def _make_function(self: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
        replicas, name = self.replicas, self.name
        program = uneven.Program(step)

        def spread_step(state: Any, data: Any) -> Any:
            replicas.check_batch(data, name)
            with replicas.distribution.scope():
                is_uneven = program.is_compiled() and not replicas.divide(data)
                spread = replicas.spread(data, unevenly=is_uneven)
                if is_uneven and not program.takes(state, spread):
                    spread = replicas.spread(data)
                results, state = step(state, spread)
                return replicas.unite(results), state

        return super()._make_function(spread_step, *args, **kwargs)  # type: ignore[misc]
