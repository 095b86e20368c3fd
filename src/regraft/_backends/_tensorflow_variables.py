"""Copies of TensorFlow's variables.

`tf.Variable(...)` asks creators, scopes and initializers first; here a variable is made
of the resource that comes out in the end, and the values of many are read in one step.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.eager import context
from tensorflow.python.eager.execute import execute
from tensorflow.python.framework import ops
from tensorflow.python.ops.gen_array_ops import deep_copy
from tensorflow.python.ops.gen_resource_variable_ops import (
    assign_variable_op,
    read_variable_op,
    var_handle_op,
)
from tensorflow.python.ops.resource_variable_ops import (
    BaseResourceVariable,
    ResourceVariable,
)


def copy_variables(values: list[Any], walk: Any) -> list[Any]:
    """Copies variables that all lie on one device, or all under strategies."""
    if walk.rules.device is None and all(map(is_spread, values)):
        return [_copy_spread(value, walk) for value in values]
    pairs = zip(values, _read_all(values), strict=True)
    return [_copy_variable(value, data, walk) for value, data in pairs]


def copy_additions(value: Any, new: Any, walk: Any) -> None:
    """Copies what was set on a variable, and the function that constrains it.

    This is for a variable that the walk meets while it can still find something.
    """
    constraint = first_replica(value).constraint
    if constraint is not None:
        for replica in replicas(new):
            replica._constraint = walk.copy_of(constraint)
    added = additions(value)
    if added:
        walk.copy_items_later(added, vars(new))


def additions(value: Any) -> dict[str, Any]:
    """Returns the attributes of a variable that TensorFlow does not write itself."""
    plain = _SPREAD if is_spread(value) else _plain_variable().keys()
    return {
        name: x
        for name, x in vars(value).items()
        if name not in plain and not name.startswith("_self_")  # For checkpoints.
    }


def _copy_variable(value: Any, data: Any, walk: Any) -> Any:
    known = walk.known(value)
    if known is not None:
        return known
    new = walk.remember(value, _variable_like(value))
    if data is not None:
        assign_variable_op(new.handle, deep_copy(data))
    return new


def _copy_spread(value: Any, walk: Any) -> Any:
    """Copies a variable under its strategy, replica by replica.

    They may differ: each counts its own rows for a metric, which are added up only
    when it is read, and has its own statistics of them.
    """
    known = walk.known(value)
    if known is not None:
        return known
    parts = [_read(replica) for replica in replicas(value)]
    if any(part is None for part in parts):  # No strategy could spread it.
        return walk.remember(value, _variable_like(value))
    return walk.remember(value, spread_like(value, parts))


def copy_into(strategy: Any, value: Any, walk: Any) -> Any:
    """Copies a variable into the scope of a strategy."""
    known = walk.known(value)
    if known is not None:
        return known
    data = _read(value)
    if data is None:  # It stays without a value, which no strategy could spread.
        return walk.remember(value, _variable_like(value))
    return walk.remember(value, created_in(strategy, value, data))


def _read(value: Any) -> Any:
    """Returns the value of a variable, or None.

    A variable has none if the step that was to make it failed while it was
    traced. Reading it then raises, or gives an empty tensor.
    """
    if is_spread(value):
        return value.read_value()
    try:
        data = read_variable_op(value.handle, value.dtype)
    except tf.errors.FailedPreconditionError:
        return None
    return data if _is_of(value, data) else None


def _read_all(values: list[Any]) -> list[Any]:
    """Reads variables by the dozen, for a quarter of what single steps take."""
    if any(map(is_spread, values)):
        return [_read(value) for value in values]
    alike: dict[Any, list[int]] = {}
    for place, value in enumerate(values):
        alike.setdefault(value.dtype, []).append(place)
    found = dict[int, Any]()
    for places in alike.values():
        for start in range(0, len(places), _AT_ONCE):
            batch = places[start : start + _AT_ONCE]
            data = _read_together([values[place] for place in batch])
            found.update(zip(batch, data, strict=True))
    return [found[place] for place in range(len(values))]


# How many are read in one step. TensorFlow makes a kernel for each new list of shapes,
# which takes longer than reading; layers that are alike need one for all.
_AT_ONCE = 32


def _read_together(values: list[Any]) -> list[Any]:
    """Reads variables of one dtype in one step, if they are as many as always."""
    if len(values) != _AT_ONCE:
        return [_read(value) for value in values]
    dtypes = [value.dtype.as_datatype_enum for value in values]
    attributes = "N", len(values), "dtypes", dtypes
    handles = [value.handle for value in values]
    step = b"_ReadVariablesOp", len(values), handles, attributes, context.context()
    try:
        found = execute(*step)
    except tf.errors.OpError:  # One of them has no value.
        return [_read(value) for value in values]
    pairs = zip(values, found, strict=True)
    return [data if _is_of(value, data) else None for value, data in pairs]


def _is_of(value: Any, data: Any) -> bool:
    # Asking for `data.shape` takes half as long as reading the value.
    same = data._shape_tuple() == value.shape._dims
    return same or bool(value.shape.is_compatible_with(data.shape))


def is_spread(value: Any) -> bool:
    """Tells whether a variable lies under a strategy, on each of its devices."""
    return getattr(value, "distribute_strategy", None) is not None


def first_replica(value: Any) -> Any:
    """Returns a variable itself, or the first replica of one that is spread."""
    return replicas(value)[0]


def replicas(value: Any) -> tuple[Any, ...]:
    """Returns the variables of which one that is spread consists.

    A strategy that keeps all variables in one place has one of each.
    """
    return tuple(getattr(value, "values", (value,))) if is_spread(value) else (value,)


def device_of(value: Any) -> Any:
    return None if is_spread(value) else value.device


def created_in(strategy: Any, value: Any, data: Any) -> Any:
    """Makes a variable like another in the scope of a strategy, with a value."""
    with scope_of(strategy):
        return tf.Variable(
            lambda: tf.raw_ops.DeepCopy(x=data),
            trainable=value.trainable,
            dtype=data.dtype,
            shape=value.shape,
            name=plain_name(value.name),
            synchronization=first_replica(value).synchronization,
            aggregation=first_replica(value).aggregation,
        )


@contextmanager
def scope_of(strategy: Any) -> Iterator[None]:
    """Enters the scope of a strategy, out of that of any other one.

    Args:
        strategy: The strategy. None, or the one that TensorFlow says is there where
            there is none, to be in no scope.
    """
    with tf.init_scope():
        graph, none = ops.get_default_graph(), no_strategy()
        before = graph._distribution_strategy_stack, graph._variable_creator_stack
        leaves = tf.distribute.get_strategy() not in (strategy, none)
        try:
            if leaves:  # TensorFlow has no way out: it refuses to enter another one.
                graph._distribution_strategy_stack = []
                graph._variable_creator_stack = []
            if strategy in (None, none):
                yield
            else:
                with strategy.scope():
                    yield
        finally:
            if leaves:
                graph._distribution_strategy_stack = before[0]
                graph._variable_creator_stack = before[1]


def no_strategy() -> Any:
    """Returns what TensorFlow says is the strategy where there is none."""
    return distribute_lib._get_default_strategy()


def spread_like(value: Any, parts: list[Any]) -> Any:
    """Makes a variable under the strategy of another one.

    Args:
        value: The other variable.
        parts: What each replica is to hold.
    """
    new = created_in(value.distribute_strategy, value, parts[0])
    if len(parts) > 1:  # So far all of them hold the first one's.
        for replica, data in zip(replicas(new), parts, strict=True):
            with tf.device(replica.device):
                assign_variable_op(replica.handle, deep_copy(data))
    return new


def lasting_kind(kind: type) -> type:
    """Returns the class of a variable's copy.

    Some variables come out of an assignment, or out of a function that was traced, and
    have classes that tell how they came about.
    """
    is_lasting = issubclass(kind, ResourceVariable)
    if issubclass(kind, BaseResourceVariable) and not is_lasting:
        return ResourceVariable
    return kind


def _variable_like(value: Any) -> Any:
    """Makes a variable without a value.

    That takes a tenth of the time of `tf.Variable(...)`.
    """
    name, whole = plain_name(value.name), vars(first_replica(value))
    handle = var_handle_op(
        value.dtype,
        value.shape,
        shared_name=context.anonymous_name(),
        # As TensorFlow named the original's: it keeps a kernel for each name.
        debug_name=f"{name}/",
    )
    new: Any = object.__new__(lasting_kind(type(first_replica(value))))
    handle._handle_data = whole["_handle"]._handle_data
    handle._parent_trackable = weakref.ref(new)
    handle._name = handle_name = f"{name}:0"
    handle._unique_id = unique_id = f"{name}_{ops.uid()}"
    state = _plain_variable().copy()
    for field in _DESCRIPTION:
        state[field] = whole[field]
    state.update(_handle=handle, _handle_name=handle_name, _unique_id=unique_id)
    object.__setattr__(new, "__dict__", state)
    return new


_DESCRIPTION = (
    "_shape",
    "_dtype",
    "_trainable",
    "_synchronization",
    "_aggregation",
    "_constraint",
    "_graph_key",
)

# What TensorFlow writes on a variable that lies under a strategy.
_SPREAD = frozenset(
    {
        *("_distribute_strategy", "_aggregation", "_values", "_common_name"),
        *("_packed_var", "_keras_initialized", "_initializer_op", "_policy"),
    }
)


@lru_cache
def _plain_variable() -> dict[str, Any]:
    """Returns all that TensorFlow writes on a new variable, but for its handle.

    `tf.Variable(...)` would make one of another class in the scope of a strategy.
    """
    return {**vars(ResourceVariable(0.0)), "_handle": None}


def plain_name(name: str) -> str:
    return name.split(":")[0]
