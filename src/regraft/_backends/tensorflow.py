"""TensorFlow variables, tables, functions and the containers it wraps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import (
    Function as PolymorphicFunction,
)
from tensorflow.python.trackable import data_structures

from .._errors import CopyError, explain
from ._loss import total_loss

_EagerTensor = type(tf.constant(0))


@lru_cache
def shared_types() -> tuple[type, ...]:
    """Immutable descriptions, and strategies, which surround a model."""
    return (
        tf.DType,
        tf.TensorShape,
        tf.TypeSpec,
        tf.distribute.Strategy,
        tf.distribute.StrategyExtended,
        tf.data.Dataset,
        tf.SparseTensor,
        tf.RaggedTensor,
        # A static table cannot change once it has been initialised.
        tf.lookup.StaticHashTable,
        tf.lookup.KeyValueTensorInitializer,
    )


@lru_cache
def copiers() -> dict[type, Any]:
    """Variables, tensors, tables, `tf.function`s and wrapped containers."""
    return {
        tf.Variable: copy_value,
        _EagerTensor: _copy_tensor,
        tf.lookup.experimental.MutableHashTable: _copy_table,
        PolymorphicFunction: _copy_function,
        data_structures._DictWrapper: _copy_proxy,
        data_structures._TupleWrapper: _copy_proxy,
    }


def copy_value(value: Any, walk: Any) -> Any:
    """Creates a variable of the same kind, on the same device, in the same scope."""
    known = walk.known(value)
    if known is not None:
        return known
    strategy = getattr(value, "distribute_strategy", None)
    with ExitStack() as scopes:
        scopes.enter_context(tf.init_scope())
        if strategy is not None:
            scopes.enter_context(strategy.scope())
        else:
            scopes.enter_context(tf.device(value.device))
        new = tf.Variable(
            lambda: tf.raw_ops.DeepCopy(x=value.read_value()),
            trainable=value.trainable,
            dtype=value.dtype,
            shape=value.shape,
            name=_plain_name(value.name),
            synchronization=value.synchronization,
            aggregation=value.aggregation,
        )
    walk.remember(value, new)
    return new


def _plain_name(name: str) -> str:
    return name.split(":")[0]


def _copy_tensor(value: Any, walk: Any) -> Any:
    """Copies numbers; strings are immutable; resources are refused."""
    if value.dtype in (tf.resource, tf.variant):
        raise CopyError(
            explain(
                "A TensorFlow resource cannot be copied.",
                where=walk.path_of(value),
                expected="a variable, a tensor of numbers or a lookup table",
                received=f"a handle of dtype {value.dtype.name}",
                fix="pass `keep=` to share it, or teach regraft to copy the object "
                "that holds it with `regraft.register_copier`",
            )
        )
    return value if value.dtype == tf.string else tf.raw_ops.DeepCopy(x=value)


def _copy_table(table: Any, walk: Any) -> Any:
    new = tf.lookup.experimental.MutableHashTable(
        key_dtype=table.key_dtype,
        value_dtype=table.value_dtype,
        default_value=walk.copy_of(table._default_value),
        name=table._name,
    )
    new.insert(*table.export())
    return new


def _copy_function(function: Any, walk: Any) -> Any:
    """Traces again: traces hold on to the original's variables."""
    inner = walk.copy_of(function.python_function)
    return function if inner is function.python_function else function._clone(inner)


def _copy_proxy(wrapper: Any, walk: Any) -> Any:
    """Wraps a copy of the wrapped container in a wrapper of the same class."""
    kind: Any = type(wrapper)
    new = kind.__new__(kind)
    data_structures.wrapt.ObjectProxy.__init__(new, walk.copy_of(wrapper.__wrapped__))
    state, target = _own_attributes(wrapper), _own_attributes(new)
    walk.later(lambda: walk.copy_items(state, target))
    return new


def _own_attributes(wrapper: Any) -> Any:
    """Returns the attributes of a wrapper itself, not of what it wraps."""
    return vars(tf.__internal__.tracking.Trackable)["__dict__"].__get__(wrapper)


def contents(obj: Any) -> Any:
    """Returns the entries of a lookup table; a bare handle says nothing."""
    if isinstance(obj, _EagerTensor) and obj.dtype in (tf.resource, tf.variant):
        return []
    if isinstance(obj, tf.lookup.experimental.MutableHashTable):
        keys, entries = (side.numpy().ravel() for side in obj.export())
        return [sorted(map(str, zip(keys, entries, strict=True)))]
    return None


def release(values: list[Any]) -> None:
    """Nothing to do: a variable's memory goes with its last reference."""


def same_buffer(left: Any, right: Any) -> bool:
    """Compares the resources that two variables stand for."""
    if left is right:
        return True
    if isinstance(left, tf.Variable) and isinstance(right, tf.Variable):
        return left.ref() == right.ref()
    return False


def is_concrete(value: Any) -> bool:
    """Tells whether a tensor has a value, i.e. is not part of a trace."""
    return not tf.is_tensor(value) or isinstance(value, _EagerTensor | tf.Variable)


def placement(value: Any) -> str:
    """Returns the variable's device, and its class where it is distributed."""
    device = str(getattr(value, "device", "?"))
    spread = getattr(value, "distribute_strategy", None) is not None
    return f"{type(value).__name__} on {device}" if spread else device


def finish(values: list[Any]) -> None:
    """Nothing to do: eager variables are copied when they are created."""


@contextmanager
def fixed_global_rng() -> Iterator[None]:
    """Nothing to do: Keras draws stateless numbers on TensorFlow."""
    yield


def gradients(model: Any, inputs: Any) -> list[Any]:
    """Returns the gradient of the mean squared outputs and all losses."""
    values = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss = total_loss(model(inputs), model.losses)
    found = tape.gradient(loss, values, unconnected_gradients="zero")
    return [tf.convert_to_tensor(grad) for grad in found]
