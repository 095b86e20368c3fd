"""What Keras does otherwise under a strategy, and is not to do in a whole-batch step.

Keras means replicas to have gradients of their own rows, which its optimizers add
up, and mixes the statistics of replicas in one pass, which loses digits where a mean
is far from zero. In a step in which every replica has the gradients of the whole
batch, optimizers do on each replica what they do on one device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import nn
from keras.src.backend.tensorflow.core import Variable
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from .... import _keras
from ...._errors import UsageError, explain
from ..._tensorflow_variables import is_spread


@contextmanager
def single_device_ways(strategy: Any) -> Iterator[None]:
    """Lets Keras update weights and take moments as on one device, of all rows.

    Args:
        strategy: The strategy under which it does. Under others it does as ever.
    """
    increment = BaseOptimizer._backend_increment_gradient_accumulators
    ways = [
        (TFOptimizer, "_backend_update_step", _update),
        (TFOptimizer, "_backend_increment_gradient_accumulators", increment),
        (TFOptimizer, "_apply_weight_decay", BaseOptimizer._apply_weight_decay),
        (Variable, "_direct_assign", _assign),
        (nn, "_compute_moments_sync", _moments_of_all_rows),
    ]
    with ExitStack() as stack:
        for owner, name, way in ways:
            stack.enter_context(_way(strategy, owner, name, way))
        yield


@contextmanager
def _way(strategy: Any, owner: Any, name: str, way: Any) -> Iterator[None]:
    original = getattr(owner, name)

    def choose(*args: Any, **kwargs: Any) -> Any:
        here = tf.distribute.get_strategy() is strategy
        return (way if here else original)(*args, **kwargs)

    setattr(owner, name, choose)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _update(optimizer: Any, grads: Any, variables: Any, learning_rate: Any) -> None:
    for grad, variable in zip(grads, variables, strict=True):
        value = getattr(variable, "value", variable)
        optimizer.update_step(grad, value, learning_rate)


def _assign(variable: Any, value: Any) -> None:
    """Assigns on this replica; where there is one value for all, that is refused.

    Every replica would change it, one after the other.
    """
    held = _keras.raw_value(variable)
    if not is_spread(held) and not tf.distribute.in_cross_replica_context():
        raise UsageError(
            explain(
                "A step changes a variable that does not lie on the replicas.",
                where=variable.path,
                expected="variables of the model, its optimizers and metrics",
                received="a variable that was made elsewhere",
                fix="let the model hold it, or what it is part of, before "
                "`regraft.replicate`",
            )
        )
    held.assign(tf.cast(value, held.dtype))


def _moments_of_all_rows(x: Any, axes: Any, keepdims: bool) -> tuple[Any, Any]:
    """Returns mean and variance over the rows of all replicas, in two passes."""
    context = tf.distribute.get_replica_context()

    def total(values: Any) -> Any:
        part = tf.reduce_sum(values, axis=axes, keepdims=True)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, part)

    count = total(tf.ones_like(x))
    mean = tf.math.divide_no_nan(total(x), count)
    squares = total(tf.math.squared_difference(x, tf.stop_gradient(mean)))
    variance = tf.math.divide_no_nan(squares, count)
    if not keepdims:
        mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
    return mean, variance
