"""torch tensors: mutable, and held by Keras variables and modules alike."""

from __future__ import annotations

import abc
import copy
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial, reduce
from typing import Any

import torch
import torch.fx
import torch.nn.utils.parametrize
from torch.nn.modules.module import _WrappedHook
from torch.nn.parameter import is_lazy

from .._makers.instances import copy_by_attributes, fill_slots, is_written_in_python
from ._loss import total_loss
from ._one_value import replicas as replicas
from ._one_value import scope_of as scope_of
from ._one_value import whole as whole
from ._torch_tensors import (
    can_wait,
    copied,
    copy_storage,
    copy_tensor,
    hooks_of,
    is_dense,
)
from ._torch_tensors import copy_values as copy_values
from ._torch_tensors import waiting_gradient as waiting_gradient
from ._torch_weights import is_trained as is_trained
from ._torch_weights import other_weights as other_weights
from ._torch_weights import reset_modules as reset_modules
from ._torch_weights import write as write


@lru_cache
def shared_types() -> tuple[type, ...]:
    """Descriptions of data, which are immutable."""
    return (
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.Size,
    )


@lru_cache
def copiers() -> dict[type, Any]:
    """Tensors of every class, their memory, random generators and modules."""
    return {
        torch.Tensor: copy_tensor,
        torch.UntypedStorage: copy_storage,
        torch.Generator: _copy_generator,
        _PlainModule: _copy_module,
        torch.jit.ScriptModule: _copy_script,
        _WrappedHook: copy_by_attributes,  # A pickle has a part of them only.
    }


def generators() -> dict[type, Callable[[Any, int], object]]:
    """The one class."""
    return {torch.Generator: torch.Generator.manual_seed}


class _PlainModule(abc.ABC):  # noqa: B024
    """Any module whose class leaves pickling to `torch.nn.Module`."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        own = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")
        if kind.__module__ == torch.nn.utils.parametrize.__name__:
            # Made around the class of a module, to refuse being pickled.
            kind = kind.__mro__[1]
        return (
            issubclass(kind, torch.nn.Module)
            and all(getattr(kind, n) is getattr(torch.nn.Module, n) for n in own)
            and not hasattr(kind, "__deepcopy__")
            and is_written_in_python(kind)
        )


def _copy_module(module: Any, walk: Any) -> Any:
    new = object.__new__(type(module))
    walk.fill_later(_fill_module, module, new)
    return new


def _fill_module(walk: Any, module: Any, new: Any) -> None:
    state = vars(module).copy()
    compiled = state.pop("_compiled_call_impl", None)
    parameters = state.get("_parameters")
    if parameters and walk.keep is None:
        waiting = (x is None or can_wait(x, walk) for x in parameters.values())
        if all(waiting):
            _list_later(walk, parameters)
    walk.copy_items(state, vars(new))
    fill_slots(walk, module, new)
    if compiled is not None:
        new._compiled_call_impl = _compiled_alike(compiled, new._call_impl)


def _compiled_alike(compiled: Any, function: Any) -> Any:
    """Compiles a function with the options of another one.

    `torch.compile` leaves them in the closure of what it returns. Where they are not,
    the copy is not compiled, which it is not in a pickle either.
    """
    cells = zip(compiled.__code__.co_freevars, compiled.__closure__ or (), strict=True)
    found = (cell.cell_contents for name, cell in cells if name == "self")
    compile_with = next(found, None)
    return None if compile_with is None else compile_with(function)


def _list_later(walk: Any, parameters: Any) -> None:
    if walk.known(parameters) is None:
        new = walk.remember(parameters, type(parameters)())
        walk.allocate(partial(_fill_parameters, walk), new, parameters)


def _fill_parameters(walk: Any, new: Any, parameters: Any) -> None:
    """Lists the copies of parameters once they have been made, mostly by variables."""
    for name, parameter in parameters.items():
        new[name] = None if parameter is None else copied(parameter, walk)


def _copy_script(module: Any, walk: Any) -> Any:
    """Copies a compiled module around the copies of its tensors.

    They lie in C++, where no memo is asked for them; others may hold them as well.
    """
    new = copy.deepcopy(module)
    if walk.rules.device is not None:
        new = new.to(walk.rules.device)
    for tensors in (module.named_parameters, module.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            *owners, last = name.split(".")
            owner = reduce(getattr, owners, new)
            setattr(owner, last, walk.copy_of(walk.hold(tensor)))
    return new


def devices() -> dict[str, Any]:
    """Returns the CPU and what accelerators there are."""
    found = {"cpu:0": torch.device("cpu")}
    if torch.accelerator.is_available():
        kind = str(torch.accelerator.current_accelerator())
        for i in range(torch.accelerator.device_count()):
            found[f"{kind.replace('cuda', 'gpu')}:{i}"] = torch.device(kind, i)
    return found


def has_layouts() -> bool:
    """Keras does not lay tensors of torch out over a mesh."""
    return False


def cast_value(value: Any, dtype: str) -> Any:
    """Casts a parameter in place: others than the variable hold it, too."""
    value.data = value.data.to(getattr(torch, dtype))
    return value


def _copy_generator(generator: Any, walk: Any) -> Any:
    common = (torch.default_generator, *torch.cuda.default_generators)
    if any(generator is one for one in common):
        return generator
    new = torch.Generator(device=generator.device)
    new.set_state(generator.get_state())
    return new


# By which a function that `torch.compile` made knows the one that it was made of.
_COMPILED = "_torchdynamo_orig_callable"


def contents(obj: Any) -> Any:
    """Returns the state of random generators, tensors and compiled modules."""
    if isinstance(obj, torch.Generator):
        return [type(obj), obj.get_state()]
    if isinstance(obj, types.FunctionType) and _COMPILED in vars(obj):
        return ["torch.compile", vars(obj)[_COMPILED]]
    if isinstance(obj, torch.jit.ScriptModule):
        return [type(obj), obj.inlined_graph.str(False), obj.state_dict()]
    if isinstance(obj, torch.fx.GraphModule):  # Each has a class of its own.
        state = {n: v for n, v in vars(obj).items() if n != "_graph"}
        return [torch.fx.GraphModule, obj.code, state]
    if isinstance(obj, torch.UntypedStorage):
        return [type(obj), str(obj.device), bytes(obj.cpu())]
    if isinstance(obj, torch.Tensor) and is_lazy(obj):
        how = [obj.requires_grad, str(obj.data.dtype), str(obj.data.device)]
        return [type(obj), how, dict(vars(obj))]
    if isinstance(obj, torch.Tensor):
        # Whatever was computed is no leaf, and its copy has no history.
        is_trained = obj.is_leaf and obj.requires_grad
        return {
            "class": type(obj),
            "requires_grad": is_trained,
            "dtype": str(obj.dtype),
            "layout": str(obj.layout),
            "hooks": hooks_of(obj) if is_trained else {},
            "attributes": dict(vars(obj)),
            "values": [to_array(part) for part in _dense_parts(obj.detach())],
        }
    return None


def to_array(value: Any) -> Any:
    """Returns the numbers of a tensor; their bits, where NumPy has no such numbers."""
    value = value.detach().cpu()
    try:
        array = value.numpy()
    except TypeError:
        array = value.contiguous().view(torch.uint8).numpy()
    array.flags.writeable = False  # It lies in the memory of the tensor.
    return array


def _dense_parts(value: Any) -> list[Any]:
    """Returns tensors that numpy can hold, which together say what a tensor holds."""
    if value.is_nested:
        return [part for inner in value.unbind() for part in _dense_parts(inner)]
    if value.is_quantized:
        return [value.int_repr(), value.dequantize()]
    if value.is_meta:
        return [torch.tensor(value.shape)]
    if value.layout is torch.strided:
        return [value.resolve_conj().resolve_neg()]
    if value.layout is torch.sparse_coo:
        parts = [value._indices(), value._values()]
    elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [value.crow_indices(), value.col_indices(), value.values()]
    else:
        parts = [value.ccol_indices(), value.row_indices(), value.values()]
    return [torch.tensor(value.shape), *parts]


def is_out_of_memory(error: BaseException) -> bool:
    """The allocators of GPUs have an error of their own, that of the CPU a text."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def release(values: list[Any]) -> None:
    """Drops the storage of tensors that nobody will use."""
    for value in values:
        if isinstance(value, torch.Tensor):
            value.data = torch.empty(0, dtype=value.dtype, device=value.device)


def buffers(value: Any) -> set[Any]:
    """Returns the address of a tensor's storage."""
    if not isinstance(value, torch.Tensor) or is_lazy(value) or not is_dense(value):
        return set()
    pointer = value.untyped_storage().data_ptr()
    return {pointer} if pointer else set()


def is_mutable() -> bool:
    """Tensors are changed in place."""
    return True


def is_concrete(value: Any) -> bool:
    """Tells whether a tensor has a value, i.e. is not part of a trace."""
    return not isinstance(value, torch.Tensor) or value.device.type != "meta"


def placement(value: Any) -> str:
    """Returns the tensor's device."""
    return str(getattr(value, "device", type(value).__name__))


def list_like(other: list[Any], items: list[Any]) -> list[Any]:
    """Returns a list of the same class, which is Keras's or the user's."""
    return type(other)(items)


def finish(values: list[Any]) -> None:
    """Waits for the streams of the devices on which the values lie."""
    for device in {value.device for value in values if value.device.type == "cuda"}:
        torch.cuda.synchronize(device)


def lasting() -> AbstractContextManager[Any]:
    """Leaves the mode of inference, whose tensors can never be trained."""
    return torch.inference_mode(False)


@contextmanager
def fixed_global_rng(seed: int = 0) -> Iterator[None]:
    """Seeds torch's generator, from which unseeded layers draw, and restores it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def gradients(model: Any, inputs: Any) -> list[Any]:
    """Returns the gradient of the mean squared outputs and all losses."""
    values = [v.value for v in model.trainable_variables]
    loss = total_loss(model(inputs), model.losses)
    found = torch.autograd.grad(loss, values, allow_unused=True)
    return [
        torch.zeros_like(value) if grad is None else grad
        for value, grad in zip(values, found, strict=True)
    ]
