"""Copies of torch's tensors, and of the memory into which several of them look.

A tensor is a look at a storage. Most are the only one at theirs; others are slices of a
flat vector, caches with a view of each half, or weights that were tied by `b.data =
a.data`. What is written to the copy of one is seen in the copies of the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from .._identity import address
from .._parts import memory_of
from ._host_memory import copy_blocks


def copy_values(
    values: list[Any], walk: Any, layouts: list[Any] | None = None
) -> Iterable[Any]:
    """Returns the tensors that stand for those that Keras variables hold."""
    waiting = []
    for value in values:
        if can_wait(value, walk):
            waiting.append(value)
        else:
            note_memory(value, walk)
    with torch.no_grad():
        if walk.rules.device is None:
            _copy_together(waiting, walk)
        return [copied(value, walk) for value in values]


def _copy_together(parameters: list[Any], walk: Any) -> None:
    """Copies what nobody else looks into: on a GPU, and on the host if large, at once.

    On a GPU the launch for each would take most time; for the host see `copy_blocks`.
    """
    on_host: tuple[list[Any], list[Any]] = ([], [])
    on_gpu: dict[Any, tuple[list[Any], list[Any]]] = {}
    for value in parameters:
        if walk.known(value) is not None or _is_common(value, walk):
            continue
        is_on_gpu = value.is_cuda
        if is_on_gpu or _is_large_block(value):
            olds, news = on_host
            if is_on_gpu:
                # Of mixed dtypes each would be copied by itself after all.
                olds, news = on_gpu.setdefault((value.device, value.dtype), ([], []))
            data = torch.empty_like(value)
            olds.append(value)
            news.append(data)
        else:
            data = value.clone()
        _copy_gradient(value, walk.remember(value, _like(value, data)), walk)
    for olds, news in on_gpu.values():
        torch._foreach_copy_(news, olds)
    blocks = [
        (new.data_ptr(), old.data_ptr(), old.nbytes)
        for old, new in zip(*on_host, strict=True)
    ]
    copy_blocks(blocks, torch.get_num_threads(), on_host)


def _is_large_block(value: Any) -> bool:
    """Tells whether torch would copy bytes on the host, and with several threads."""
    if not value.is_cpu or value.numel() < 1 << 15:
        return False
    return value.is_contiguous() and not value.is_conj() and not value.is_neg()


def copied(value: Any, walk: Any) -> Any:
    """Returns the copy of a tensor; others may hold one that waits for its value."""
    known = walk.known(value)
    if known is not None:
        return known
    if not can_wait(value, walk):
        return copy_tensor(value, walk)
    new = walk.remember(value, _like(value, _copy_data(value, walk)))
    _copy_gradient(value, new, walk)
    return new


def can_wait(value: Any, walk: Any) -> bool:
    """Tells whether nothing but its numbers is to be copied of a parameter.

    Then a walk need not follow it, and its memory has been noted. It is asked for by
    its variable and by every module that lists it.
    """
    bare = walk.memory.bare
    key = address(value)
    if key in bare:
        return True
    if not _is_bare(value):
        return False
    note_memory(value, walk)
    bare.add(key)
    return True


def _is_bare(value: Any) -> bool:
    if type(value) is not torch.nn.Parameter:
        return False
    if value._backward_hooks or value._post_accumulate_grad_hooks:
        return False
    return not value.__dict__ and not value._is_view() and is_dense(value)


def _like(value: Any, data: Any) -> Any:
    """Returns a tensor of the same class, of which this is the storage."""
    return torch.Tensor._make_subclass(type(value), data, value.requires_grad)


def copy_tensor(value: Any, walk: Any) -> Any:
    """Returns a tensor of the same class whose storage is allocated at the end.

    A parameter is reached through its Keras variable and through the parameter
    dicts of modules. The walk's memo makes all of them meet the one object that
    is returned here.
    """
    known = walk.known(value)
    if known is not None:
        return known
    if is_lazy(value):
        return _copy_lazy(value, walk)
    is_common = note_memory(value, walk)
    follows = is_common or isinstance(value._base, torch.nn.Parameter)
    if follows and value._is_view():
        return walk.remember(value, _same_view(value, walk))
    kind = type(value)
    device = walk.rules.device or value.device
    if not is_dense(value):  # A hollow tensor cannot become one of these.
        new = value.detach().to(device, copy=True)
        return walk.remember(value, new.requires_grad_(value.requires_grad))
    new = torch.empty(0, dtype=value.dtype, device=device)
    if kind is torch.Tensor:
        new.requires_grad_(value.is_leaf and value.requires_grad)
    else:
        new = torch.Tensor._make_subclass(kind, new, value.requires_grad)
    extra = getattr(value, "__dict__", None)
    walk.remember(value, new)
    if extra:
        walk.copy_items_later(extra, new.__dict__)
    for name, hooks in hooks_of(value).items() if new.requires_grad else ():
        setattr(new, name, walk.copy_of(hooks))
    walk.allocate(lambda new, value: _fill(new, value, walk), new, value)
    return new


def hooks_of(value: Any) -> dict[str, Any]:
    """Returns the functions that are called with a tensor's gradient."""
    names = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return {name: getattr(value, name) for name in names if getattr(value, name)}


def _copy_lazy(value: Any, walk: Any) -> Any:
    """Copies a tensor that has no shape yet; it answers few questions."""
    device = walk.rules.device or value.data.device
    new = type(value)(value.requires_grad, device, value.data.dtype)
    walk.remember(value, new)
    walk.copy_items_later(vars(value), vars(new))
    return new


def is_dense(value: Any) -> bool:
    """Tells whether a tensor is nothing but a shape and numbers in its storage."""
    special = value.is_nested or value.is_quantized
    return value.layout is torch.strided and not special


def _same_view(view: Any, walk: Any) -> Any:
    """Looks at the copy of a tensor as `view` looks at the tensor.

    `transpose(embedding.embeddings)` in a graph is such a view: it follows the
    parameter when that is trained, and gradients flow back through it.
    """
    base = walk.copy_of(view._base)
    _fill(base, view._base, walk)
    with torch.set_grad_enabled(view.requires_grad):
        return view._view_func(base)


def _fill(new: Any, value: Any, walk: Any) -> None:
    """Gives a hollow tensor its storage, once."""
    if new.shape != value.shape or new.data_ptr() == 0:
        new.data = _copy_data(value, walk)
        _copy_gradient(value, new, walk)


def _copy_gradient(value: Any, new: Any, walk: Any) -> None:
    """Copies what a model has gathered for a step to come.

    A step as Keras makes it begins with clearing it, and what is left of the last one
    would double the size of the copy.
    """
    gradient = waiting_gradient(value)
    if gradient is None or address(value) in walk.cleared_gradients:
        return
    new.grad = walk.known(gradient)
    if new.grad is None:
        copy = _copy_on(gradient.detach(), walk.rules.device)
        new.grad = walk.remember(gradient, copy)


def waiting_gradient(value: Any) -> Any:
    """Returns the gradient that a tensor has gathered, or None."""
    return value.grad if value.is_leaf else None


# --- memory ----------------------------------------------------------------------


def note_memory(value: Any, walk: Any) -> bool:
    """Notes that a tensor looks into its storage; tells whether others do, too."""
    start = _start_of(value)
    return bool(start) and walk.memory.note(start, value)


def _is_common(value: Any, walk: Any) -> bool:
    """Tells whether others look into a tensor's storage; mostly nobody shares any."""
    has_any = walk.memory.count_common() > 0
    return has_any and walk.memory.is_common(_start_of(value))


def _start_of(value: Any) -> int:
    """Returns where the storage of a tensor begins, or 0 if it has none."""
    try:
        return value.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # Sparse tensors have several.
        return 0


def _copy_data(value: Any, walk: Any) -> Any:
    """Returns the numbers of a tensor's copy, which others may look at as well."""
    device = walk.rules.device
    if not _is_common(value, walk):
        return _copy_on(value.detach(), device)
    storage = copy_storage(value.untyped_storage(), walk)
    hollow = torch.empty(0, dtype=value.dtype, device=device or value.device)
    where = value.storage_offset(), value.size(), value.stride()
    return hollow.set_(storage, *where)


def _copy_on(value: Any, device: Any) -> Any:
    """Copies a tensor, without its history, to a device or to where it is."""
    if device is None or value.device == device:
        return value.clone()
    return value.to(device, copy=True)


def copy_storage(storage: Any, walk: Any) -> Any:
    """Copies the memory of tensors, once for all that look into it."""
    known = walk.known(storage)
    if known is not None:
        return known
    walk.memory.note(storage.data_ptr(), walk.hold(storage))
    data = _memory_of_array(storage, walk)
    if data is None:
        data = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        data = _copy_on(data, walk.rules.device)
    return walk.remember(storage, data.untyped_storage())


def _memory_of_array(storage: Any, walk: Any) -> Any:
    """Returns the bytes of an array's copy, if the storage is the array's memory."""
    viewers = walk.memory.viewers(storage.data_ptr())
    for array in (viewer for viewer in viewers if isinstance(viewer, np.ndarray)):
        owner = memory_of(array)
        if owner.nbytes == storage.nbytes() and owner.flags.writeable:
            new = walk.copy_of(owner)
            return torch.from_numpy(new.ravel(order="K").view(np.uint8))
    return None
