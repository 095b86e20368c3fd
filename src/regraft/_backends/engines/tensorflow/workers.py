"""Several workers on TensorFlow: the cluster that `TF_CONFIG` names."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import (
    CollectiveAllReduceExtended,
)

from ...._errors import UsageError, explain
from ...tensorflow import short_name
from .._agreement import check_models, different_batches, digest_of_model
from .strategy import WholeBatches


class _Joined(CollectiveAllReduceExtended):
    """Takes part in the cluster that the program has joined at its start.

    Joining starts a server, and once it runs, its heartbeats tell of workers that
    have died. A second server would make variables unreachable that are there.
    """

    _std_server_started = True
    _enable_check_health = False


class WholeBatchWorkers(WholeBatches, tf.distribute.Strategy):
    """Replicas on the devices of all workers.

    It does what `tf.distribute.MultiWorkerMirroredStrategy` does, but is none for
    Keras, which would put together the results of workers that are whole already.
    """

    # Away from the keys of strategies of the program's own, which start at 0.
    _collective_key_base = 1_000_000

    def __init__(self) -> None:
        options = tf.distribute.experimental.CommunicationOptions()
        super().__init__(
            _Joined(self, cluster_resolver=None, communication_options=options)
        )

    def checks(self, data: Any) -> list[Any]:
        """Makes sure that all workers were given the same batch."""
        leaves = [leaf for leaf in tf.nest.flatten(data) if _has_numbers(leaf)]
        if not leaves:
            return []
        marks = tf.stack([number for leaf in leaves for number in _mark(leaf)])
        context = tf.distribute.get_replica_context()
        every = context.all_gather(marks[None], axis=0)
        # Machines may round a sum differently, so it need not be the same to a bit.
        far = tf.abs(every[:, ::2] - every[:1, ::2]) > 1e-9 * every[:, 1::2]
        with tf.device("CPU:0"):  # Where strings are.
            return [tf.debugging.Assert(~tf.reduce_any(far), [_DIFFERENT])]


def _has_numbers(leaf: Any) -> bool:
    is_dense = isinstance(leaf, tf.Tensor) and leaf.shape.rank not in (None, 0)
    return is_dense and (leaf.dtype.is_floating or leaf.dtype.is_integer)


def _mark(leaf: Any) -> tuple[Any, Any]:
    """Returns a sum that tells batches and orders of rows apart, and its scale."""
    count = tf.shape(leaf)[0]
    rows = tf.reshape(tf.cast(leaf, tf.float64), [count, -1])
    rows = tf.where(tf.math.is_nan(rows), tf.zeros_like(rows), rows)
    weights = tf.range(1, tf.cast(count, tf.float64) + 1, dtype=tf.float64)
    total = tf.reduce_sum(tf.reduce_sum(rows, 1) * weights)
    scale = tf.reduce_sum(tf.reduce_sum(tf.abs(rows), 1) * weights)
    return total + tf.cast(count, tf.float64), scale + 1


_DIFFERENT = different_batches(
    "a step of a replicated model", "rows that differ by worker"
)


@lru_cache
def strategy_of_workers() -> WholeBatchWorkers | None:
    """Returns the one strategy for the cluster of this program, if it has one."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    jobs = resolver.cluster_spec().as_dict()
    count = sum(len(jobs.get(job, ())) for job in ("chief", "worker"))
    if count < 2 or resolver.task_type not in ("chief", "worker"):
        return None
    try:
        return WholeBatchWorkers()
    except RuntimeError as error:
        raise UsageError(
            explain(
                "TensorFlow has not joined the cluster of workers.",
                where="the environment variable TF_CONFIG",
                expected="a program that joins the cluster before it does anything "
                "else with TensorFlow",
                received=f"a cluster of {count} workers, and a running program: "
                f"{error}",
                fix="call `tf.distribute.MultiWorkerMirroredStrategy()` in the "
                "first lines of the program, before models are built",
            )
        ) from error


class WorkerReplicas:
    """The devices of all workers, each with its copy of every variable."""

    distribution = None
    splits_calls = True
    splits_every_call = False

    def __init__(self, names: list[str], strategy: Any, steps: type) -> None:
        extended = strategy.extended
        workers = range(extended._num_workers)
        self.devices = tuple(f"worker:{i}/{name}" for i in workers for name in names)
        self.near = names[0]
        self.steps = steps
        self.place = strategy
        self._names = names
        self._worker = extended._id_in_cluster
        self._workers = len(workers)

    def agree(self, model: Any) -> None:
        """Compares the digests of all workers."""
        digests = self._of_all_workers(digest_of_model(model))
        check_models(model, digests, self._worker)

    def _of_all_workers(self, digest: bytes) -> list[bytes]:
        mine = np.frombuffer(digest, "uint8").astype("int32")

        def gather() -> Any:
            context = tf.distribute.get_replica_context()
            return context.all_gather(tf.constant(mine[None]), axis=0)

        rows = self.place.run(gather).numpy()[:: len(self._names)]
        return [row.astype("uint8").tobytes() for row in rows]

    def adopt(self, model: Any) -> None:
        """Nothing to do: the copy lies in the strategy's scope already."""

    def homes(self, variable: Any) -> list[str]:
        """Returns the devices of a variable: each worker has the same ones."""
        local = [short_name(c.device) for c in variable.value.values]
        workers = range(self._workers)
        return [f"worker:{i}/{name}" for i in workers for name in local]

    def write(self, write: Callable[[], Any]) -> Any:
        """Lets the first worker write, while the others wait."""
        try:
            return write() if self._worker == 0 else None
        finally:
            self._of_all_workers(b"written")

    def describe(self) -> str:
        """Names the strategy."""
        return (
            f"tf.distribute.MultiWorkerMirroredStrategy on {len(self.devices)} "
            f"devices of {self._workers} workers"
        )
