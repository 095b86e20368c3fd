"""Strategies of TensorFlow under which every replica sees the whole batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from ...._errors import UsageTypeError, explain
from .keras_steps import single_device_ways
from .split import is_traced_only, seed_for_these_rows

_ONE_STEP_AT_A_TIME = threading.RLock()


class WholeBatches:
    """Makes a strategy run steps that are written for one device.

    Every replica is given the whole batch and ends with the results of the whole
    batch; what is shared out is the call of the model (`SplitCall`).
    """

    _undo: ExitStack
    _changed: set[int]

    @property
    def num_replicas_in_sync(self) -> int:
        """One: losses and gradients of a replica are those of the whole batch.

        By this number Keras and users scale what they add up over replicas.
        """
        return 1

    @contextmanager
    def scope(self: Any) -> Iterator[Any]:
        """The scope of the strategy, for variables of whole batches."""
        strategy_scope = super().scope()  # type: ignore[misc]
        with strategy_scope, tf.variable_creator_scope(_first_replica_speaks):
            yield self

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Returns the dataset: its batches are split where they are used."""
        return dataset

    def run(
        self: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Runs a step on every replica; returns its result, the same on each."""
        for leaf in tf.nest.flatten((args, kwargs)):
            refuse_distributed(leaf)

        def step(*args: Any, **kwargs: Any) -> Any:
            # Keras keeps its global generator for each thread.
            global_state.set_global_attribute(
                seed_generator.GLOBAL_SEED_GENERATOR, _GlobalGenerator()
            )
            with tf.control_dependencies(self.checks((args, kwargs))):
                return fn(*args, **kwargs)

        with _ONE_STEP_AT_A_TIME, ExitStack() as self._undo:
            self._changed = set()
            self._undo.enter_context(single_device_ways(self))
            results = super().run(step, args, kwargs, options)  # type: ignore[misc]
        return tf.nest.map_structure(
            lambda value: self.experimental_local_results(value)[0], results
        )

    def checks(self, data: Any) -> list[Any]:
        """Returns what is to hold before a replica runs a step on a batch."""
        return []

    def in_this_step(self, layer: Any, call: Any) -> None:
        """Gives a layer another `call` until the end of the step."""
        if id(layer) not in self._changed:
            self._changed.add(id(layer))
            self._undo.enter_context(_set(vars(layer), "call", call))


def _first_replica_speaks(next_creator: Any, **kwargs: Any) -> Any:
    """Makes a variable that is not added up over replicas when it is read.

    So are metrics that each replica counts for its own rows; here each replica has
    counted all. The components keep saying how they would be added up.
    """
    variable = next_creator(**kwargs)
    if kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ:
        variable._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return variable


def refuse_distributed(data: Any) -> None:
    """Refuses data that a strategy has dealt out already."""
    kinds = (tf.distribute.DistributedValues, tf.distribute.DistributedDataset)
    if isinstance(data, kinds):
        raise UsageTypeError(
            explain(
                "A batch is split over the replicas already.",
                where="the data of a replicated model",
                expected="batches as they are for one device",
                received=f"a {type(data).__name__}",
                fix="pass the dataset itself, not what a strategy's "
                "`experimental_distribute_dataset` made of it",
            )
        )


class _GlobalGenerator:
    """Draws one seed for all replicas, from the generator of the main thread."""

    def next(self, ordered: bool = True) -> Any:
        if is_traced_only():
            return tf.zeros([2], "int64")

        def draw(_: Any) -> Any:
            return seed_generator.global_seed_generator().next(ordered)

        seed = tf.distribute.get_replica_context().merge_call(draw)
        return seed_for_these_rows(seed)


@contextmanager
def _set(attributes: dict[str, Any], name: str, value: Any) -> Iterator[None]:
    before = {name: attributes[name]} if name in attributes else {}
    attributes[name] = value
    try:
        yield
    finally:
        del attributes[name]
        attributes.update(before)


class WholeBatchMirrored(WholeBatches, tf.distribute.MirroredStrategy):
    """Replicas on the devices of one process."""
