"""What an object is made of: its labelled parts, and the way to them.

`parts` is the reading counterpart of the walk: it lists what the walk would
follow. It serves `diff` and the paths in error messages; the walk itself has
faster code of its own.
"""

from __future__ import annotations

import functools
import gc
import types
from array import array as PythonArray
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from . import _keras
from ._atoms import ATOMS
from ._identity import address


@functools.lru_cache(maxsize=4096)
def slots_of(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Returns the name and descriptor of every slot of a class."""
    found = []
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType):
                found.append((name, member))
    return tuple(found)


def memory_of(array: Any) -> Any:
    """Returns the array in whose memory an array lies, perhaps itself."""
    while isinstance(base := _seen_through(array.base), np.ndarray):
        array = base
    return array


def _seen_through(base: Any) -> Any:
    """Returns what an array looks at, which is often behind a `memoryview`."""
    return base.obj if isinstance(base, memoryview) else base


def buffer_behind(array: Any) -> Any:
    """Returns the object whose bytes an array looks at, if they can change."""
    owner = _seen_through(memory_of(array).base)
    return owner if isinstance(owner, bytearray | PythonArray) else None


def start_of_memory(array: Any) -> int:
    """Returns the address at which the memory begins that an array looks into."""
    buffer = buffer_behind(array)
    return start_of(
        memory_of(array) if buffer is None else np.frombuffer(buffer, np.uint8)
    )


def start_of(array: Any) -> int:
    """Returns the address at which an array begins in memory."""
    return int(array.ctypes.data)


# What an exception says of others. Setting a cause suppresses the context, so it is
# first. The way by which it came, frame by frame, is no part of a model.
ERROR_PARTS = ("__cause__", "__context__", "__suppress_context__")


def attributes(obj: Any) -> dict[str, Any]:
    """Returns an object's own attributes, from its dict and its slots."""
    try:
        found = dict(object.__getattribute__(obj, "__dict__"))
    except (AttributeError, TypeError):
        found = {}
    kind: Any = type(obj)
    for name, member in slots_of(kind):
        try:
            found[name] = member.__get__(obj)
        except (AttributeError, TypeError):
            continue
    if issubclass(kind, BaseException):
        found.update({name: getattr(obj, name) for name in ERROR_PARTS})
    return found


def is_model_state(obj: Any) -> bool:
    """Tells whether an object is a piece of a model: layer, variable, tensor."""
    kinds = (
        _keras.Operation,
        _keras.Variable,
        _keras.SeedGenerator,
        _keras.Metric,
        _keras.BaseOptimizer,
        _keras.KerasTensor,
    )
    return isinstance(obj, kinds)


def mapping_behind(proxy: Any) -> Any:
    """Returns the very mapping that a proxy shows, which others may change."""
    (mapping,) = gc.get_referents(proxy)
    return mapping


def parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yields `(label, part)` for everything that an object holds."""
    if isinstance(obj, types.FunctionType):
        names = obj.__code__.co_freevars
        for name, cell in zip(names, obj.__closure__ or (), strict=True):
            try:
                yield f".<{name}>", cell.cell_contents
            except ValueError:  # An empty cell.
                continue
        for i, default in enumerate(obj.__defaults__ or ()):
            yield f".<default {i}>", default
        for name, default in (obj.__kwdefaults__ or {}).items():
            yield f".<default {name}>", default
        yield from ((f".{k}", v) for k, v in obj.__dict__.items())
        return
    if isinstance(obj, types.MethodType):
        yield ".__func__", obj.__func__
        yield ".__self__", obj.__self__
        return
    if isinstance(obj, functools.partial):
        yield ".func", obj.func
        yield from ((f".args[{i}]", v) for i, v in enumerate(obj.args))
        yield from ((f".keywords[{k!r}]", v) for k, v in obj.keywords.items())
    if isinstance(obj, types.MappingProxyType):
        yield "", mapping_behind(obj)
        return
    if isinstance(obj, np.ndarray):
        if obj.dtype == object:
            yield from ((f"[{i}]", v) for i, v in enumerate(obj.flat))
        return
    kind = type(obj)  # A proxy says it is an instance of what it wraps.
    if issubclass(kind, dict):
        for key, value in dict.items(obj):
            yield f"[{key!r}]" if isinstance(key, str | int) else "[…]", value
            yield "<key>", key
    elif issubclass(kind, list):
        yield from ((f"[{i}]", v) for i, v in enumerate(list.__iter__(obj)))
    elif issubclass(kind, tuple | deque):
        yield from ((f"[{i}]", v) for i, v in enumerate(obj))
    elif issubclass(kind, set | frozenset):
        yield from (("{…}", v) for v in obj)
    if hasattr(kind, "__wrapped__") and not callable(obj):
        yield "", obj.__wrapped__
    if isinstance(obj, type | types.ModuleType):
        return
    skipped = _keras.NODE_LISTS if isinstance(obj, _keras.Operation) else ()
    for name, value in attributes(obj).items():
        if name not in skipped:
            yield f".{name}", value


def named_parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """Like `parts`, but reaches layers by their names first."""
    if isinstance(obj, _keras.Layer) and "_layers" in vars(obj):
        graph = _keras.inner_graph(obj)
        operations: Iterable[Any] = graph.operations if graph is not None else ()
        for layer in [*operations, *_keras.sublayers(obj)]:
            yield f"/{layer.name}", layer
    yield from parts(obj)


def held_by(root: Any, targets: Iterable[Any]) -> set[int]:
    """Returns the addresses of those of some objects that can be reached from another.

    Args:
        root: Where to start.
        targets: The objects to find, by identity.
    """
    wanted, found = {address(target) for target in targets}, set[int]()
    for obj, _ in _reached(root, None):
        if address(obj) in wanted:
            found.add(address(obj))
            if found == wanted:
                break
    return found


def path_between(root: Any, target: Any, name: str) -> str:
    """Returns the shortest path from `root` to `target`, for a message.

    Args:
        root: Where to start.
        target: The object to find, by identity.
        name: What to call the root.
    """
    for obj, path in _reached(root, name):
        if obj is target:
            return path
    return f"{name} (an object of type {type(target).__name__} inside it)"


def _reached(root: Any, name: str | None) -> Iterator[tuple[Any, str]]:
    """Yields what can be reached from an object, each with the shortest path to it.

    Without a name for the object the paths are not worked out.
    """
    queue: deque[tuple[Any, str]] = deque([(root, name or "")])
    seen = {address(root)}
    alive = [root]  # Parts may be made on the fly: their ids must stay taken.
    while queue:
        obj, path = queue.popleft()
        yield obj, path
        for label, part in named_parts(obj):
            if address(part) not in seen and type(part) not in ATOMS:
                seen.add(address(part))
                alive.append(part)
                queue.append((part, path if name is None else path + label))
