"""JAX arrays: immutable, but donated by the trainer, so never shared."""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import extend as jax_extend
from jax._src.lib import xla_client
from jax._src.sharding_impls import UnspecifiedValue
from jax.experimental import multihost_utils

from .._errors import CopyError, explain
from .._identity import address
from .._makers.instances import copy_by_attributes
from . import _jax_relayout
from ._loss import total_loss
from ._one_value import replicas as replicas
from ._one_value import scope_of as scope_of
from ._one_value import whole as whole
from ._plain_values import lasting as lasting
from ._plain_values import reset_modules as reset_modules
from ._plain_values import to_array as to_array
from ._plain_values import waiting_gradient as waiting_gradient

_Array = xla_client.ArrayImpl


@lru_cache
def shared_types() -> tuple[type, ...]:
    """Descriptions of devices and shardings, and values under a trace."""
    return (
        jax.sharding.Sharding,
        jax.sharding.Mesh,
        jax.sharding.PartitionSpec,
        jax.Device,
        jax.core.Tracer,
        jax.tree_util.PyTreeDef,
        jax.ShapeDtypeStruct,
        UnspecifiedValue,
        # Rules are registered for a primitive, which is known by its identity.
        jax_extend.core.Primitive,
    )


@lru_cache
def copiers() -> dict[type, Any]:
    """Arrays, jitted functions and the modules of flax."""
    return {
        jax.Array: _copy,
        type(jax.jit(len)): _copy_jitted,
        _PlainTree: copy_by_attributes,
    }


def generators() -> dict[type, Callable[[Any, int], object]]:
    """None: its keys are arrays."""
    return {}


class _PlainTree(abc.ABC):  # noqa: B024
    """Any object of flax's NNX whose class leaves copying to NNX.

    That copies the object with all that is in it, and knows nothing of the parts that
    others hold as well. Its attributes are all that there is to it.
    """

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        nnx: Any = sys.modules.get("flax.nnx")
        own = (
            *("__deepcopy__", "__reduce_ex__", "__reduce__"),
            *("__getstate__", "__setstate__"),
        )
        return (
            nnx is not None
            and issubclass(kind, nnx.Pytree)
            and all(getattr(kind, n) is getattr(nnx.Pytree, n) for n in own)
        )


def copy_values(
    values: list[Any], walk: Any, layouts: list[Any] | None = None
) -> Iterable[Any]:
    """Copies arrays into new buffers, laid out alike or as they are told to be.

    A copy that lies elsewhere goes there shard by shard, and no device gets all of an
    array, unless that is what it was told to have (see `_jax_relayout`).
    """
    for value in values:
        if not isinstance(value, jax.core.Tracer) and value.is_deleted():
            raise CopyError(
                explain(
                    "A JAX array of this model was deleted, so its value is lost.",
                    where=walk.path_of(value),
                    expected="an array that holds a value",
                    received="an array whose buffer was donated to a jitted function",
                    fix="do not donate the model's arrays, or clone before donating",
                )
            )
    if layouts is not None:
        return _put(values, [layout.backend_layout for layout in layouts])
    device = walk.rules.device
    if device is not None:
        return _put(values, [jax.sharding.SingleDeviceSharding(device)] * len(values))
    if all(type(value) is _Array for value in values):
        # Most have the same sharding, which takes a while to say where it lies.
        shardings = {address(s): s for s in (value.sharding for value in values)}
        if all(sharding.is_fully_addressable for sharding in shardings.values()):
            return _duplicates(values)
    return [_copy_alone(value) for value in values]


def other_weights(operation: Any) -> dict[str, Any]:
    """Returns nothing: what is learned is in Keras's variables."""
    return {}


def is_trained(value: Any) -> bool:
    """There is none to be asked of."""
    return False


def write(value: Any, new: Any) -> None:
    """There is none to be written to."""


def cast_value(value: Any, dtype: str) -> Any:
    """Returns another array, which lies where the first one lies.

    It is cast on the host: JAX would compile a program for each shape.
    """
    if not value.is_fully_addressable:
        return value.astype(dtype)
    data = np.asarray(value).astype(jnp.dtype(dtype))
    return jax.device_put(data, value.sharding, may_alias=False)


def _put(values: list[Any], shardings: list[Any]) -> list[Any]:
    """Lays copies out elsewhere.

    JAX keeps a buffer that lies where a shard is wanted, whatever `may_alias`
    says. Such a value is copied first, for JAX to keep the copy's.
    """
    values = [_nearby(value, to) for value, to in zip(values, shardings, strict=True)]
    pairs = list(zip(values, shardings, strict=True))
    relaid = {
        i: _jax_relayout.laid_out(*pair)
        for i, pair in enumerate(pairs)
        if _jax_relayout.is_needed(*pair)
    }
    others = [pair for i, pair in enumerate(pairs) if i not in relaid]
    moved = iter(
        jax.device_put([v for v, _ in others], [s for _, s in others], may_alias=False)
    )
    new = [relaid[i] if i in relaid else next(moved) for i in range(len(pairs))]
    return [
        jax.device_put(_copy_alone(value), sharding)
        if copy is value or buffers(value) & buffers(copy)
        else copy
        for (value, sharding), copy in zip(pairs, new, strict=True)
    ]


def _nearby(value: Any, sharding: Any) -> Any:
    """Returns all of a value that other processes hold, too, if it is to come here."""
    if value.is_fully_addressable or not sharding.is_fully_addressable:
        return value
    if value.is_fully_replicated:
        return value.addressable_data(0)
    return multihost_utils.process_allgather(value, tiled=True)


def devices() -> dict[str, Any]:
    """Returns the devices of the default platform, and the CPUs."""
    found = {f"{d.platform}:{d.id}": d for d in [*jax.devices(), *jax.devices("cpu")]}
    return {name.replace("cuda", "gpu"): device for name, device in found.items()}


def has_layouts() -> bool:
    """JAX arrays are sharded over meshes."""
    return True


def _copy(value: Any, walk: Any) -> Any:
    (new,) = copy_values([value], walk)
    return new


def _copy_alone(value: Any) -> Any:
    """Copies any kind of array: traced, random keys, with shards elsewhere."""
    if isinstance(value, jax.core.Tracer):
        return value
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = _copy_alone(jax.random.key_data(value))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    if not value.is_fully_addressable:  # Each process copies its shards.
        return jax.jit(jnp.copy, out_shardings=value.sharding)(value)
    return _duplicates([value])[0]


def _duplicates(arrays: list[Any]) -> list[Any]:
    """Does `jax.device_put(arrays, may_alias=False)`, for a fifth of its price.

    This is the call at its bottom, past the tracing and the trees.
    """
    shardings = [array.sharding for array in arrays]
    devices = [sharding._internal_device_list for sharding in shardings]
    always = [xla_client.ArrayCopySemantics.ALWAYS_COPY] * len(arrays)
    copy_arrays = xla_client.batched_copy_array_to_devices_with_sharding
    copies: list[Any] = copy_arrays(arrays, devices, shardings, always)
    return copies


def _copy_jitted(function: Any, walk: Any) -> Any:
    """Jits the copy of a function that is bound to a part of the model."""
    inner = function.__wrapped__
    new = walk.copy_of(inner)
    if new is inner:
        return function
    if not walk.complete(function, inner):  # Its signature will be read.
        return walk.known(function)
    jitted = jax.jit(new, **_jit_options(function._jit_info))
    plain = vars(jax.jit(len))
    added = {name: x for name, x in vars(function).items() if name not in plain}
    if added:
        walk.copy_items_later(added, vars(jitted))
    return jitted


def _jit_options(info: Any) -> dict[str, Any]:
    """Returns the arguments of `jax.jit` from what it noted of them."""
    names = ("static", "donate")
    options = {f"{n}_{k}": getattr(info, f"{n}_{k}") for n in names for k in _ARGUMENTS}
    for side in ("in_shardings", "out_shardings"):
        leaves = getattr(info, f"{side}_leaves")
        if not all(type(leaf) is UnspecifiedValue for leaf in leaves):
            treedef = getattr(info, f"{side}_treedef")
            options[side] = jax.tree_util.tree_unflatten(treedef, leaves)
    for name in ("device", "backend"):
        # JAX warns of them, also where they are None.
        if getattr(info, name) is not None:
            options[name] = getattr(info, name)
    return {
        **options,
        "keep_unused": info.keep_unused,
        "inline": info.inline,
        "compiler_options": dict(info.compiler_options_kvs) or None,
    }


_ARGUMENTS = ("argnums", "argnames")


def contents(obj: Any) -> Any:
    """Returns the data of a random key; an id of flax is another in each copy."""
    if isinstance(obj, jax.Array) and jnp.issubdtype(obj.dtype, jax.dtypes.prng_key):
        return [type(obj), jax.random.key_data(obj)]
    return [type(obj)] if type(obj).__module__ == "flax.ids" else None


def is_out_of_memory(error: BaseException) -> bool:
    """XLA says so by a status in the text of its error."""
    if isinstance(error, jax.errors.JaxRuntimeError):
        return "RESOURCE_EXHAUSTED" in str(error)
    return isinstance(error, MemoryError)


def release(values: list[Any]) -> None:
    """Deletes the buffers of arrays that nobody will use."""
    for value in values:
        if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
            value.delete()


def buffers(value: Any) -> set[Any]:
    """Returns the addresses of an array's local shards."""
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return set()
    try:
        return _pointers(value)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return set()


def is_mutable() -> bool:
    """An array never changes, so that two variables may hold the same one."""
    return False


def _pointers(value: Any) -> set[Any]:
    if value.size == 0:
        return set()
    # Not as a number: NumPy may look into the same memory, but nobody writes to it.
    return {("jax", x.data.unsafe_buffer_pointer()) for x in value.addressable_shards}


def is_concrete(value: Any) -> bool:
    """Tells whether a tensor has a value, i.e. is not part of a trace."""
    return not isinstance(value, jax.core.Tracer)


def placement(value: Any) -> str:
    """Returns the array's sharding, which names its devices."""
    return str(getattr(value, "sharding", type(value).__name__))


def list_like(other: list[Any], items: list[Any]) -> list[Any]:
    """Returns a list of the same class, which is Keras's or the user's."""
    return type(other)(items)


def finish(values: list[Any]) -> None:
    """Blocks until the device has made every copy."""
    jax.block_until_ready(values)


@contextmanager
def fixed_global_rng(seed: int = 0) -> Iterator[None]:
    """Nothing to do: JAX has no global random state."""
    yield


def gradients(model: Any, inputs: Any) -> list[Any]:
    """Returns the gradient of the mean squared outputs and all losses."""
    trainable = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]

    def loss_of(trainable: list[Any]) -> Any:
        outputs, _, losses = model.stateless_call(
            trainable, others, inputs, return_losses=True
        )
        return total_loss(outputs, losses)

    return list(jax.grad(loss_of)(trainable))
