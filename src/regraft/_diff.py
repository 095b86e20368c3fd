"""Compares two models object by object.

The comparison walks both models at once, breadth first, and pairs what stands
at the same place. Each pair is looked at once. Layers and variables are reached
by their names first, so that a difference is reported under a path that a
reader knows.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import _backends, _functions, _keras
from ._atoms import ATOMS
from ._errors import RegraftError
from ._identity import address, address_by_id
from ._makers import PROXIES, is_plain, target_of
from ._parts import attributes, is_model_state, mapping_behind
from ._values import NOTHING, Difference, compare_arrays, same_atom, to_numpy
from ._walk import Walk

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


_WEAK_CONTAINERS = (
    weakref.WeakSet,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)


# Python may make one or several of these as it likes.
_WITHOUT_IDENTITY = (
    tuple,
    frozenset,
    types.FunctionType,
    types.MethodType,
    types.BuiltinMethodType,
    types.MethodWrapperType,
)


class Comparison:
    """The state of one comparison.

    Args:
        left: The first model.
        right: The second model.
    """

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right
        self.objects = 0
        self.variables = 0
        self.bytes = 0
        self._queue: deque[tuple[Any, Any, str]] = deque()
        self._pairs: set[tuple[int, int]] = set()
        self._right_of: dict[int, int] = {}
        self._left_of: dict[int, int] = {}
        self._pointers: list[tuple[int, int, str, str]] = []
        self._alive: list[Any] = []
        self._walk = Walk(left)  # Knows which objects may be shared.
        self._backend = _backends.active()

    def run(self) -> Iterator[Difference]:
        """Yields every difference in structure and state."""
        for model in (self.left, self.right):
            for layer in _trainers(model):
                _keras.jax_sync(layer)
        name = getattr(self.left, "name", type(self.left).__name__)
        if self.left is self.right:
            yield Difference(name, self.left, self.right, "one and the same object")
            return
        self._queue.append((self.left, self.right, name))
        while self._queue:
            left, right, path = self._queue.popleft()
            yield from self._compare(left, right, path)
        # What points at other objects can be judged when all have been paired.
        for pointer, other, path, why in self._pointers:
            if self._right_of.get(pointer, pointer) != other:
                yield Difference(path, pointer, other, why)

    # --- one pair --------------------------------------------------------------

    def _compare(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        kind = type(left)
        if kind in ATOMS or type(right) in ATOMS:
            if not same_atom(left, right):
                yield Difference(path, left, right, "value")
            return
        if (address(left), address(right)) in self._pairs:
            return
        self._pairs.add((address(left), address(right)))
        self._alive += [left, right]
        self.objects += 1
        if left is right:
            yield from self._compare_shared(left, path)
            return
        if kind in PROXIES and kind is type(right):  # It looks like what it points at.
            self._compare_targets(left, right, path)
            return
        held, other = opaque_contents(left), opaque_contents(right)
        is_opaque = held is not None and other is not None
        if not is_opaque and _class_of(left) is not _class_of(right):
            yield Difference(path, kind, type(right), "class")
            return
        yield from self._compare_ties(left, right, path)
        if is_opaque:
            self._push(held, other, path)
        else:
            yield from self._compare_contents(left, right, path)

    def _compare_shared(self, obj: Any, path: str) -> Iterator[Difference]:
        if _is_weak(obj):
            self._compare_targets(obj, obj, path)
            return
        if isinstance(obj, types.FunctionType):
            shared = not self._walk.must_copy(obj)
        elif isinstance(obj, tuple | frozenset):
            self._queue.extend((part, part, path) for part in obj)
            return
        elif isinstance(obj, types.MethodType):
            self._queue.append((obj.__self__, obj.__self__, path))
            return
        else:
            shared = self._may_be_shared(obj)
        if not shared:
            yield Difference(path, obj, obj, "shared by both models")

    def _may_be_shared(self, obj: Any) -> bool:
        """Asks the walk whether a copy would hold the very same object."""
        try:
            return self._walk.copy_of(obj) is obj
        except RegraftError:
            return False

    def _compare_ties(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        if isinstance(left, _WITHOUT_IDENTITY):
            return
        other = self._right_of.setdefault(address(left), address(right))
        back = self._left_of.setdefault(address(right), address(left))
        if other != address(right):
            yield Difference(path, left, right, "tie: one object became several")
        elif back != address(left):
            yield Difference(path, left, right, "tie: several objects became one")

    def _compare_contents(
        self, left: Any, right: Any, path: str
    ) -> Iterator[Difference]:
        # An instance may have an answer to any name that it is asked for.
        kind: Any = type(left)
        if isinstance(left, _keras.Variable):
            yield from self._compare_variables(left, right, path)
        elif isinstance(left, _keras.KerasTensor):
            self._compare_tensors(left, right, path)
        elif _holds_objects(left) and _holds_objects(right):
            self._push(left.shape, right.shape, f"{path}.shape")
            self._push(str(left.dtype), str(right.dtype), f"{path}.dtype")
            self._push(left.tolist(), right.tolist(), path)
        elif hasattr(kind, "__array__"):
            yield from compare_arrays(left, right, path)
        elif isinstance(left, types.FunctionType):
            yield from self._compare_functions(left, right, path)
        elif isinstance(left, types.MethodType):
            same = left.__func__ is right.__func__
            if not (same and _functions.is_shared_by_class(left, is_model_state)):
                self._push(left.__func__, right.__func__, f"{path}.__func__")
            self._push(left.__self__, right.__self__, f"{path}.__self__")
        elif isinstance(left, _functions.CachedFunction):
            limits = left.cache_parameters(), right.cache_parameters()
            self._push(*limits, f"{path}.cache_parameters()")
            self._compare_states(vars(left), vars(right), path)
        elif isinstance(left, functools.partial):
            self._push(left.func, right.func, f"{path}.func")
            self._push(left.args, right.args, f"{path}.args")
            self._push(left.keywords, right.keywords, f"{path}.keywords")
        elif isinstance(left, types.BuiltinMethodType | types.MethodWrapperType):
            self._push(left.__name__, right.__name__, f"{path}.__name__")
            self._push(left.__self__, right.__self__, f"{path}.__self__")
        elif isinstance(left, types.MappingProxyType):
            self._push(mapping_behind(left), mapping_behind(right), path)
        elif isinstance(left, _WEAK_CONTAINERS):
            yield from self._compare_weakly(left, right, path)
        elif isinstance(left, weakref.ref):
            self._compare_targets(left, right, path)
        else:
            yield from self._compare_items(left, right, path)
            yield from self._compare_attributes(left, right, path)

    def _compare_weakly(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        if len(left) != len(right):
            yield Difference(path, len(left), len(right), "number of items")
        if isinstance(left, weakref.WeakSet):  # In no order.
            return
        for i, (mine, other) in enumerate(
            zip(left.items(), right.items(), strict=False)
        ):
            weak = 0 if isinstance(left, weakref.WeakKeyDictionary) else 1
            where = f"{path}[…{i}]"
            pointers = address(mine[weak]), address(other[weak])
            self._pointers.append((*pointers, where, "weak reference"))
            self._push(mine[1 - weak], other[1 - weak], where)

    def _compare_targets(self, left: Any, right: Any, path: str) -> None:
        mine, other = target_of(left), target_of(right)
        if isinstance(mine, types.MethodType) and isinstance(other, types.MethodType):
            self._push(mine.__func__, other.__func__, f"{path}.__func__")
            mine, other = mine.__self__, other.__self__
        self._pointers.append((address(mine), address(other), path, "weak reference"))

    def _push(self, left: Any, right: Any, path: str) -> None:
        self._queue.append((left, right, path))

    # --- kinds of objects --------------------------------------------------------

    def _compare_variables(
        self, left: Any, right: Any, path: str
    ) -> Iterator[Difference]:
        self.variables += 1
        old, new = _keras.raw_value(left), _keras.raw_value(right)
        self._compare_states(
            _keras.variable_state(left), _keras.variable_state(right), path
        )
        if old is None or new is None:
            if old is not new:
                yield Difference(path, left, right, "one of them has no value")
            return
        if self._backend.same_buffer(old, new):
            yield Difference(path, left, right, "shared buffer")
        where, there = self._backend.placement(old), self._backend.placement(new)
        if where != there:
            yield Difference(path, where, there, "device or sharding")
        values = to_numpy(left), to_numpy(right)
        self.bytes += values[0].nbytes
        yield from compare_arrays(*values, path)

    def _compare_tensors(self, left: Any, right: Any, path: str) -> None:
        states = _keras.tensor_state(left), _keras.tensor_state(right)
        if all(_keras.is_automatic_tensor_name(state["name"]) for state in states):
            for state in states:
                del state["name"]  # A counter's value, not somebody's choice.
        self._compare_states(*states, path)
        origins = [_keras.history(tensor) or (None, 0, 0) for tensor in (left, right)]
        if None not in (origins[0][0], origins[1][0]):  # Else from outside a graph.
            self._push(origins[0][0], origins[1][0], f"{path}.<made by>")
        self._push(origins[0][2], origins[1][2], f"{path}.<output number>")

    def _compare_functions(
        self, left: Any, right: Any, path: str
    ) -> Iterator[Difference]:
        if left.__code__ != right.__code__ or left.__globals__ is not right.__globals__:
            yield Difference(path, left, right, "function")
            return
        self._push(left.__defaults__, right.__defaults__, f"{path}.<defaults>")
        self._push(left.__kwdefaults__, right.__kwdefaults__, f"{path}.<defaults>")
        self._push(left.__dict__, right.__dict__, f"{path}.<attributes>")
        cells = zip(left.__closure__ or (), right.__closure__ or (), strict=True)
        for name, (mine, other) in zip(left.__code__.co_freevars, cells, strict=True):
            where = f"{path}.<{name}>"
            yield from self._compare_ties(mine, other, where)
            if mine is other and name in _functions.rebound_names(left.__code__):
                yield Difference(where, mine, other, "shared by both models")
            self._push(_content(mine), _content(other), where)

    def _compare_items(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        if isinstance(left, dict):
            yield from self._compare_dicts(left, right, path)
        elif isinstance(left, set | frozenset):
            yield from self._compare_sets(left, right, path)
        elif isinstance(left, bytearray):
            if left != right:
                yield Difference(path, left, right, "value")
        elif isinstance(left, list | tuple | deque):
            if isinstance(left, deque):
                self._push(left.maxlen, right.maxlen, f"{path}.maxlen")
            mine, other = _items_of(left), _items_of(right)
            if len(mine) != len(other):
                yield Difference(path, len(mine), len(other), "number of items")
            for i, (x, y) in enumerate(zip(mine, other, strict=False)):
                self._push(x, y, f"{path}[{i}]")

    def _compare_dicts(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        if all(_is_plain_key(key) for key in left):
            if list(left) != list(right):
                yield Difference(path, list(left), list(right), "keys")
            for key in [k for k in left if k in right]:
                self._push(left[key], right[key], f"{path}[{key!r}]")
            return
        if len(left) != len(right):
            yield Difference(path, len(left), len(right), "number of items")
        pairs = zip(left.items(), right.items(), strict=False)
        for i, ((k, v), (key, value)) in enumerate(pairs):
            self._compare_keys(k, key, f"{path}.<key {i}>")
            self._push(v, value, f"{path}[…{i}]")

    def _compare_keys(self, left: Any, right: Any, path: str) -> None:
        if _keras.is_identity_key(left) and _keras.is_identity_key(right):
            pointers = address_by_id(left), address_by_id(right)
            self._pointers.append((*pointers, path, "key"))
        elif type(left) is type(right) is tuple and len(left) == len(right):
            for mine, other in zip(left, right, strict=True):
                self._compare_keys(mine, other, path)
        else:
            self._push(left, right, path)

    def _compare_sets(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        if len(left) != len(right):
            yield Difference(path, len(left), len(right), "number of items")
        elif all(_is_plain_key(item) for item in left):
            if set(left) != set(right):
                yield Difference(path, left, right, "value")
        elif len(left) == 1:
            self._compare_keys(next(iter(left)), next(iter(right)), f"{path}{{…}}")
        else:
            shared = [x for x in left if x in right and is_model_state(x)]
            self._queue.extend((x, x, f"{path}{{…}}") for x in shared)

    def _compare_attributes(
        self, left: Any, right: Any, path: str
    ) -> Iterator[Difference]:
        if isinstance(left, _keras.Layer):
            yield from self._compare_members(left, right, path)
        mine, other = attributes(left), attributes(right)
        if not isinstance(left, _CONTAINERS) and not is_plain(left):
            yield from self._compare_opaque(left, right, path)
        _keras.forget_bookkeeping(left, mine)
        _keras.forget_bookkeeping(right, other)
        self._compare_states(mine, other, path)

    def _compare_opaque(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        """Compares objects whose state is hidden, by what they say of themselves."""
        try:
            mine, other = left.__reduce_ex__(4), right.__reduce_ex__(4)
        except Exception:  # Whatever a class raises that cannot tell.
            compares: Any = type(left).__eq__
            if compares is not object.__eq__ and left != right:
                yield Difference(path, left, right, "value")
            return
        if isinstance(mine, str) or isinstance(other, str):  # Names of globals.
            self._push(mine, other, path)
        else:
            # Without the function that makes the object.
            self._push(list(mine[1:]), list(other[1:]), path)

    def _compare_members(
        self, left: Any, right: Any, path: str
    ) -> Iterator[Difference]:
        """Pairs layers and variables by position, and names them in paths."""
        graphs = _keras.inner_graph(left), _keras.inner_graph(right)
        kinds = [
            ("layers", _keras.sublayers(left), _keras.sublayers(right)),
            ("variables", _keras.own_variables(left), _keras.own_variables(right)),
        ]
        if None not in graphs:
            kinds.insert(0, ("operations", *(g.operations for g in graphs)))
        elif graphs[0] is not graphs[1]:
            yield Difference(path, graphs[0], graphs[1], "one of them has no graph")
        for what, mine, other in kinds:
            if len(mine) != len(other):
                names, others = ([x.name for x in side] for side in (mine, other))
                yield Difference(path, names, others, f"number of {what}")
            for x, y in zip(mine, other, strict=False):
                self._push(x, y, f"{path}/{x.name}")

    def _compare_states(
        self, left: dict[str, Any], right: dict[str, Any], path: str
    ) -> None:
        for name in left | right:
            mine, other = left.get(name, NOTHING), right.get(name, NOTHING)
            self._push(mine, other, f"{path}.{name}")


def opaque_contents(obj: Any) -> Any:
    """Returns what a framework says an opaque object of its own holds, or None."""
    for framework in _backends.loaded():
        held = framework.contents(obj)
        if held is not None:
            return held
    return None


def _is_plain_key(key: Any) -> bool:
    """Tells whether a key means the same in any model."""
    if isinstance(key, tuple | frozenset):
        return all(_is_plain_key(part) for part in key)
    return type(key) in ATOMS and not _keras.is_identity_key(key)


def _holds_objects(obj: Any) -> bool:
    return isinstance(obj, np.ndarray) and obj.dtype.hasobject


def _is_weak(obj: Any) -> bool:
    return isinstance(obj, weakref.ref) or type(obj) in PROXIES


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # An empty cell.
        return NOTHING


def _class_of(obj: Any) -> Any:
    """Returns the class, where containers that Keras wraps count as plain ones."""
    kind = type(obj)
    if kind.__module__.split(".")[0] in ("keras", "tensorflow", "builtins"):
        for plain in (list, dict, set):
            if isinstance(obj, plain):
                return plain
    return kind


def _items_of(sequence: Any) -> list[Any]:
    """Returns the items, past what a class that nobody here knows says they are."""
    kind = _class_of(sequence)
    base: Any = next((b for b in (list, tuple, deque) if issubclass(kind, b)), None)
    if base is None or kind is not type(sequence):  # TensorFlow has them elsewhere.
        return list(sequence)
    return list(base.__iter__(sequence))


def _trainers(model: Any) -> list[Any]:
    layers = _keras.all_layers(model) if isinstance(model, _keras.Layer) else []
    return [layer for layer in layers if isinstance(layer, _keras.Trainer)]
