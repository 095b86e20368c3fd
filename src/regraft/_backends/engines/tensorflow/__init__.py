"""TensorFlow: variables mirrored by `tf.distribute`, each call split by rows.

What happens to a batch: every replica runs the step on the whole batch, but calls
the model on its own rows only; the outputs of all replicas are put together, and
the gradients of the variables are summed. So losses, metrics, masks and sample
weights are those of the whole batch, also of one that cannot be split evenly, in
steps of the user, too. Layers that can synchronize their batch statistics
(`BatchNormalization`) do. Dropout folds the number of the replica into its seed:
each replica draws numbers of its own, the same ones in every run.

A model whose call cannot be split without changing its numbers (it adds losses or
changes variables of its own while it is called) is called on the whole batch by
every replica, with a warning: the same numbers, without the gain. What is
not seen in inference is a layer that mixes rows in training and keeps nothing: it
mixes those of its replica.

With several workers (`TF_CONFIG`) the strategy is a
`tf.distribute.MultiWorkerMirroredStrategy`. Each worker is given the same data, calls
the model on its own rows of every batch, and ends with the same weights. TensorFlow
joins a cluster when a program starts: create such a strategy in the first lines.

On one device there is no strategy: the model runs as it did.
"""

from __future__ import annotations

import warnings
from typing import Any

import tensorflow as tf

from .... import _keras
from ...._errors import UnsplitBatchWarning, UsageError, explain
from ..._tensorflow_variables import created_in, is_spread
from ...tensorflow import short_name
from .._one_process import OneDevice, OneProcess
from .split import SplitCall
from .strategy import WholeBatches, WholeBatchMirrored, refuse_distributed
from .workers import WorkerReplicas, strategy_of_workers


def default_devices() -> list[str]:
    """Returns all GPUs of this worker, or CPUs where there are none."""
    workers = strategy_of_workers()
    if workers is not None:
        return [short_name(device) for device in workers.extended.worker_devices]
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices(
        "CPU"
    )
    return [short_name(device.name) for device in found]


def repeats() -> bool:
    """A strategy has each device once."""
    return False


def replicas(
    names: list[str], devices: list[Any], merge: Any, home: Any
) -> OneDevice | MirroredReplicas | WorkerReplicas:
    """Plans a strategy, or none for one device. Weights lie on every device."""
    workers = strategy_of_workers()
    if workers is not None:
        _check_all(names)
        return WorkerReplicas(names, workers, SplitSteps)
    if len(devices) == 1:
        return OneDevice(names[0], devices[0], "TensorFlow")
    return MirroredReplicas(names, devices, merge)


def _check_all(names: list[str]) -> None:
    every = default_devices()
    if names != every:
        raise UsageError(
            explain(
                "Several workers take part with all their devices.",
                where="argument `devices`",
                expected=f"nothing, or {', '.join(every)} for this worker",
                received=", ".join(names),
                fix="leave `devices` out; hide devices that are not to take part "
                "with `tf.config.set_visible_devices`",
            )
        )


class MirroredReplicas(OneProcess):
    """Several devices of this process, each with its copy of every variable."""

    splits_calls = True

    def __init__(self, names: list[str], devices: list[Any], merge: Any) -> None:
        super().__init__(names)
        self.steps = SplitSteps
        self.place = WholeBatchMirrored(
            devices, tf.distribute.ReductionToOneDevice(reduce_to_device=merge)
        )

    def homes(self, variable: Any) -> list[str]:
        """Returns the devices of the components of a variable."""
        return [short_name(component.device) for component in variable.value.values]

    def describe(self) -> str:
        """Names the strategy."""
        return f"tf.distribute.MirroredStrategy on {len(self.devices)} devices"


class SplitSteps:
    """Runs each step of a Keras TensorFlow trainer under a strategy."""

    replicas: MirroredReplicas | WorkerReplicas

    @property
    def distribute_strategy(self) -> Any:
        """The strategy, of which nothing is written on the model."""
        return self.replicas.place

    @property
    def jit_compile(self) -> bool:
        """XLA compiles programs for one device only."""
        return False

    @jit_compile.setter
    def jit_compile(self: Any, value: Any) -> None:
        kind: Any = type(_keras.behind(self))
        kind.jit_compile.fset(self, value)

    def compile(self: Any, *args: Any, **kwargs: Any) -> None:
        """Compiles; what that makes is mirrored."""
        with self.distribute_strategy.scope():
            super().compile(*args, **kwargs)  # type: ignore[misc]
        _move(self, self.distribute_strategy)

    def _maybe_symbolic_build(
        self: Any, iterator: Any = None, data_batch: Any = None
    ) -> None:
        """Builds metrics and optimizers before replicas need them.

        A batch of the data is described, not taken: not all data can be read twice.
        """
        if iterator is not None:
            refuse_distributed(iterator._distributed_dataset)
            data_batch = iterator._distributed_dataset.element_spec
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=data_batch)
        _move(self, self.distribute_strategy)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model, in a step on the rows of a replica."""
        call = super().__call__  # type: ignore[misc]
        if not args or not _in_replica() or _keras.in_stateless_scope():
            return call(*args, **kwargs)
        split = SplitCall(self, call, args, kwargs)
        obstacle = split.obstacle()
        if obstacle is None:
            return split.run()
        warnings.warn(
            explain(
                "The batches of this model are not split: every device computes "
                "all of each batch.",
                where=self.name,
                expected="a call in which each row is computed for itself",
                received=obstacle,
                fix="nothing, if it is about the numbers, which are right; to gain "
                "speed, move this out of the model's call",
            ),
            UnsplitBatchWarning,
            stacklevel=2,
        )
        return call(*args, **kwargs)


def _move(model: Any, strategy: Any) -> None:
    """Mirrors what was made outside of the strategy: optimizers and metrics."""
    optimizers = list(_keras.optimizers_of(model))
    variables = [*model.variables, *model.metrics_variables]
    for optimizer in optimizers:
        _keras.set_strategy(optimizer, strategy)
        variables += optimizer.variables
    for variable in variables:
        value = _keras.raw_value(variable)
        if not is_spread(value):
            mirrored = created_in(strategy, value, value.read_value())
            _keras.set_raw_value(variable, mirrored)


def _in_replica() -> bool:
    context = tf.distribute.get_replica_context()
    return context is not None and isinstance(context.strategy, WholeBatches)
