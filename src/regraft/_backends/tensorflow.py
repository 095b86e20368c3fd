"""TensorFlow variables, tables, functions and the containers it wraps."""

from __future__ import annotations

import abc
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import (
    ConcreteFunction,
)
from tensorflow.python.eager.polymorphic_function.polymorphic_function import (
    Function as PolymorphicFunction,
)
from tensorflow.python.framework import ops
from tensorflow.python.ops.lookup_ops import TableInitializerBase
from tensorflow.python.saved_model.function_deserialization import RestoredFunction
from tensorflow.python.trackable import data_structures
from tensorflow.python.trackable.base import Trackable, TrackableReference
from tensorflow.python.util import tf_decorator, tf_should_use

from .._errors import CopyError, explain
from ._loss import total_loss
from ._plain_values import lasting as lasting
from ._plain_values import reset_modules as reset_modules
from ._plain_values import to_array as to_array
from ._plain_values import waiting_gradient as waiting_gradient
from ._tensorflow_files import Loaded, copy_loaded, refuse_function
from ._tensorflow_resources import (
    MutableHashTable,
    StatelessResource,
    copy_stateless,
    copy_table,
    resource_state,
    share_dataset,
    table_contents,
)
from ._tensorflow_variables import (
    additions,
    copy_additions,
    copy_into,
    copy_variables,
    device_of,
    is_spread,
    lasting_kind,
    no_strategy,
    plain_name,
    replicas,
    scope_of,
    spread_like,
)

_EagerTensor = ops.EagerTensor


@lru_cache
def shared_types() -> tuple[type, ...]:
    """Immutable descriptions, and what surrounds a model."""
    return (
        tf.DType,
        tf.TensorShape,
        tf.TypeSpec,
        tf.distribute.StrategyExtended,
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
        tf.Variable: _copy_alone,
        _EagerTensor: _copy_tensor,
        tf.distribute.Strategy: _copy_strategy,
        tf.data.Dataset: share_dataset,
        MutableHashTable: copy_table,
        StatelessResource: copy_stateless,
        Loaded: copy_loaded,
        RestoredFunction: refuse_function,
        PolymorphicFunction: _copy_function,
        data_structures._DictWrapper: _copy_proxy,
        data_structures._TupleWrapper: _copy_proxy,
        _MustBeUsed: _copy_used,
    }


def generators() -> dict[type, Callable[[Any, int], object]]:
    """The one class, whose state is a variable."""
    return {tf.random.Generator: tf.random.Generator.reset_from_seed}


def copy_values(
    values: list[Any], walk: Any, layouts: list[Any] | None = None
) -> Iterable[Any]:
    """Makes variables of the same kind, on the same devices, in the same scopes."""
    copies = []
    place = walk.rules.device
    with scope_of(None):
        if isinstance(place, tf.distribute.Strategy):
            return [copy_into(place, value, walk) for value in values]
        for device, group in itertools.groupby(values, key=device_of):
            with tf.device(place or device):
                copies += copy_variables(list(group), walk)
    return copies


def other_weights(operation: Any) -> dict[str, Any]:
    """Returns the variables of TensorFlow that are attributes."""
    found = vars(operation).items()
    return {name: x for name, x in found if isinstance(x, tf.Variable)}


def is_trained(value: Any) -> bool:
    """Tells whether a variable has a gradient; whole numbers count as trainable."""
    return bool(value.trainable and value.dtype.is_floating)


def write(value: Any, new: Any) -> None:
    """Assigns to a variable."""
    value.assign(new)


def cast_value(value: Any, dtype: str) -> Any:
    """Returns another variable, on the same device or under the same strategy."""
    with scope_of(None):
        if is_spread(value):
            parts = [tf.cast(part.read_value(), dtype) for part in replicas(value)]
            return spread_like(value, parts)
        with tf.device(value.device):
            return tf.Variable(
                lambda: tf.cast(value.read_value(), dtype),
                trainable=value.trainable,
                name=plain_name(value.name),
                synchronization=value.synchronization,
                aggregation=value.aggregation,
            )


def devices() -> dict[str, Any]:
    """Returns the logical devices, without those of other workers."""
    names = [device.name for device in tf.config.list_logical_devices()]
    server = context.context()._collective_ops_server_def
    if server is not None:
        here = f"/job:{server.job_name}/replica:0/task:{server.task_index}/"
        names = [name for name in names if name.startswith(here)]
    return {short_name(name): name for name in names}


def short_name(device: str) -> str:
    """Returns `gpu:1` for the full name that TensorFlow gives a device."""
    return device.split("device:")[1].lower()


def has_layouts() -> bool:
    """Keras says not to lay variables of TensorFlow out over a mesh."""
    return False


def _copy_alone(value: Any, walk: Any) -> Any:
    (new,) = copy_values([value], walk)
    copy_additions(value, new, walk)
    return new


def _copy_strategy(strategy: Any, walk: Any) -> Any:
    """Returns the strategy in whose scope the copy lies."""
    place = walk.rules.device
    if place is None:
        return strategy
    spread = isinstance(place, tf.distribute.Strategy)
    return place if spread else no_strategy()


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
    added = vars(value)
    if value.dtype == tf.string and not added:
        return value
    is_text = value.dtype == tf.string
    new = tf.identity(value) if is_text else tf.raw_ops.DeepCopy(x=value)
    if added:  # A mask, say.
        walk.copy_items_later(added, vars(new))
    return new


def _copy_function(function: Any, walk: Any) -> Any:
    """Traces again: traces hold on to the original's variables."""
    inner = walk.copy_of(function.python_function)
    if inner is function.python_function:
        return function
    if not walk.complete(function, function.python_function):
        return walk.known(function)
    new = function._clone(inner)
    wrapper = getattr(function, "_tf_decorator", None)
    if wrapper is None:
        return new
    return tf_decorator.make_decorator(inner, new, wrapper.decorator_name)


def _copy_proxy(wrapper: Any, walk: Any) -> Any:
    """Wraps a copy of the wrapped container in a wrapper of the same class."""
    kind: Any = type(wrapper)
    new = kind.__new__(kind)
    data_structures.wrapt.ObjectProxy.__init__(new, walk.copy_of(wrapper.__wrapped__))
    walk.copy_items_later(_own_attributes(wrapper), _own_attributes(new))
    return new


def _own_attributes(wrapper: Any) -> Any:
    """Returns the attributes of a wrapper itself, not of what it wraps."""
    return vars(tf.__internal__.tracking.Trackable)["__dict__"].__get__(wrapper)


class _MustBeUsed(abc.ABC):  # noqa: B024
    """Any wrapper of a result that TensorFlow reports if nobody uses it."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return kind.__module__ == tf_should_use.__name__


def _copy_used(wrapper: Any, walk: Any) -> Any:
    """Returns the copy of what is wrapped, which nobody needs to be reminded of."""
    return walk.copy_of(_used(wrapper))


def _used(wrapper: Any) -> Any:
    # A wrapper hands all questions on, apart from this one.
    return wrapper._tf_should_use_wrapped_value


def contents(obj: Any) -> Any:
    """Returns what is in tables and SavedModels; a bare handle says nothing."""
    if isinstance(obj, _EagerTensor) and obj.dtype in (tf.resource, tf.variant):
        return [type(obj)]
    if issubclass(type(obj), _MustBeUsed):
        obj = _used(obj)
    if isinstance(obj, tf.TensorArray):  # What is inside knows it by its address.
        inside = {n: x for n, x in vars(obj._implementation).items() if n != "parent"}
        return [type(obj), {**vars(obj), "_implementation": inside}]
    if isinstance(obj, MutableHashTable):
        return table_contents(obj)
    if isinstance(obj, TableInitializerBase):
        state = {**vars(obj), "_name": str(vars(obj).get("_name")).rstrip("0123456789")}
        return [type(obj), state]  # Its number is a counter's.
    if isinstance(obj, StatelessResource):
        return [type(obj), resource_state(obj)]
    if isinstance(obj, tf.data.Dataset):
        return [type(obj), repr(obj)]
    if isinstance(obj, tf.Variable):
        how = [obj.trainable, str(obj.shape), obj.aggregation, obj.constraint]
        values = [replica.numpy() for replica in replicas(obj)]
        return [lasting_kind(type(obj)), how, values, additions(obj)]
    if isinstance(obj, Loaded):
        children: Any = obj
        return ["SavedModel", dict(sorted(children._trackable_children().items()))]
    if isinstance(obj, RestoredFunction):
        return [type(obj), [_operations(f) for f in obj.concrete_functions]]
    if isinstance(obj, ConcreteFunction):
        return [type(obj), _operations(obj)]
    if isinstance(obj, PolymorphicFunction):  # Its traces are made when it is called.
        how = [obj._autograph, obj._jit_compile, obj._reduce_retracing]
        return [type(obj), obj.python_function, obj.input_signature, how]
    return None


def _operations(function: Any) -> list[tuple[str, str, bytes]]:
    """Returns the operations of a graph, with the values of its constants."""
    return [
        (op.type, op.name, op.node_def.attr["value"].SerializeToString())
        for op in function.graph.get_operations()
    ]


def is_out_of_memory(error: BaseException) -> bool:
    """TensorFlow has an error for it."""
    return isinstance(error, tf.errors.ResourceExhaustedError | MemoryError)


def release(values: list[Any]) -> None:
    """Nothing to do: a variable's memory goes with its last reference."""


def buffers(value: Any) -> set[Any]:
    """Returns the resource that a variable stands for; tensors cannot be changed."""
    return {value.ref()} if isinstance(value, tf.Variable) else set()


def is_mutable() -> bool:
    """Variables are changed in place."""
    return True


def is_concrete(value: Any) -> bool:
    """Tells whether a tensor has a value, i.e. is not part of a trace."""
    return not tf.is_tensor(value) or isinstance(value, _EagerTensor | tf.Variable)


def placement(value: Any) -> str:
    """Returns the variable's devices, and its class where it is distributed."""
    places = ", ".join(str(getattr(part, "device", "?")) for part in replicas(value))
    return f"{type(value).__name__} on {places}" if is_spread(value) else places


def whole(value: Any) -> Any:
    """Returns what a variable says: of one that is spread, a sum, a mean, or one."""
    return value.read_value() if is_spread(value) else value


def list_like(other: list[Any], items: list[Any]) -> list[Any]:
    """Returns a list of the same class: TensorFlow wraps those that a layer holds.

    The wrapper would ask each item a dozen questions, to know whether it is saved.
    Of an operation that is known: it is, if it is a layer.
    """
    are_operations = all(isinstance(item, keras.Operation) for item in items)
    if type(other) is not data_structures.ListWrapper or not are_operations:
        return type(other)(items)
    new: Any = data_structures.ListWrapper([])
    new._maybe_initialize_trackable()
    saved = {str(i): x for i, x in enumerate(items) if isinstance(x, Trackable)}
    references = [TrackableReference(name, x) for name, x in saved.items()]
    new._self_unconditional_checkpoint_dependencies.extend(references)
    new._self_unconditional_dependency_names.update(saved)
    new._storage.extend(items)
    new._update_snapshot()
    return new


def finish(values: list[Any]) -> None:
    """Nothing to do: eager variables are copied when they are created."""


@contextmanager
def fixed_global_rng(seed: int = 0) -> Iterator[None]:
    """Seeds the stream of `tf.random`, which Keras itself does not use."""
    state = vars(context.context())
    before = {name: state.pop(name, None) for name in ("_seed", "_rng")}
    state["_seed"], state["_rng"] = seed, random.Random(seed)
    fresh = state["_rng"].getstate()
    try:
        yield
    finally:
        if state["_rng"].getstate() != fresh:  # The kernels that drew go on drawing.
            tf.random.set_seed(0)
        state.update(before)


def gradients(model: Any, inputs: Any) -> list[Any]:
    """Returns the gradient of the mean squared outputs and all losses."""
    values = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss = total_loss(model(inputs), model.losses)
    found = tape.gradient(loss, values, unconnected_gradients="zero")
    return [tf.convert_to_tensor(grad) for grad in found]
