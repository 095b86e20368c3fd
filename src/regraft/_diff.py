"""Compares two models object by object.

The comparison walks both models at once, breadth first, and pairs what stands
at the same place. Each pair is looked at once. Layers and variables are reached
by their names first, so that a difference is reported under a path that a
reader knows.
"""

from __future__ import annotations

import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from . import _backends, _functions, _keras
from ._atoms import ATOMS, is_value_class
from ._diff_calls import compare_call_lists, compare_node_keys, compare_producers
from ._diff_containers import (
    WEAK_CONTAINERS,
    class_of,
    compare_items,
    compare_weakly,
    match_items,
)
from ._diff_values import (
    ask,
    content,
    differences_of_arrays,
    holds_objects,
    is_of_a_framework,
    is_weak,
    means_the_same,
    opaque_contents,
)
from ._identity import address, address_by_id, may_be_id
from ._makers import PROXIES, is_plain, target_of
from ._parts import attributes, is_model_state, mapping_behind
from ._sharing import WITHOUT_IDENTITY, Sharing
from ._values import (
    NOTHING,
    Difference,
    compare_arrays,
    named_values,
    same_atom,
    to_numpy,
)

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


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
        self._put_off: deque[tuple[Any, Any, str]] = deque()
        self._pairs: set[tuple[int, int]] = set()
        self._right_of: dict[int, int] = {}
        self._left_of: dict[int, int] = {}
        self._judgements: list[Callable[[], Iterator[Difference]]] = []
        self._sharing = Sharing(left)
        self._backend = _backends.active()
        # The ids of parameters whose gradients nobody will use.
        cleared = map(_keras.cleared_gradients, (left, right))
        self._cleared = set[int]().union(*cleared)

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
        while self._queue or self._put_off:
            if self._queue:
                yield from self._compare(*self._queue.popleft())
            else:
                yield from match_items(self, *self._put_off.popleft())
        for judge in self._judgements:
            yield from judge()
        yield from self._sharing.found()

    # --- for those who compare parts ----------------------------------------------

    def push(self, left: Any, right: Any, path: str) -> None:
        """Has two objects compared, which stand at the same place."""
        self._queue.append((left, right, path))

    def put_off(self, left: Any, right: Any, path: str) -> None:
        """Has two sets compared when there is nothing else to compare."""
        self._put_off.append((left, right, path))

    def judge_later(self, judge: Callable[[], Iterator[Difference]]) -> None:
        """Has something compared that can be judged when all objects are paired."""
        self._judgements.append(judge)

    def point(self, left: int, right: int, path: str, why: str) -> None:
        """Notes two addresses, which must be those of objects that belong together."""
        self.point_at_all([left], [right], path, why)

    def point_at_all(
        self,
        left: Iterable[int],
        right: Iterable[int],
        path: str,
        why: str = "what it points at",
    ) -> None:
        """Notes addresses, in no order."""
        mine, other = {*left}, {*right}

        def judge() -> Iterator[Difference]:
            if not {self._right_of.get(x, x) for x in mine} <= other:
                yield Difference(path, mine, other, why)

        self.judge_later(judge)

    def partner_of(self, left: Any) -> int | None:
        """Returns the address of what an object was paired with, if it was."""
        return self.partner_at(address(left))

    def has_partner(self, right: Any) -> bool:
        """Tells whether an object of the second model was paired with any."""
        return address(right) in self._left_of

    def partner_at(self, left: int) -> int | None:
        """Does so for an object that is known by its address."""
        return self._right_of.get(left)

    def is_same(self, left: Any, right: Any) -> bool:
        """Tells whether two objects differ in nothing, in a comparison of their own."""
        return next(Comparison(left, right).run(), None) is None

    # --- one pair --------------------------------------------------------------

    def _compare(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        kind = type(left)
        if kind in ATOMS or type(right) in ATOMS:
            if may_be_id(left) and may_be_id(right):
                self.judge_later(partial(self._compare_ids, left, right, path))
            elif not same_atom(left, right):
                yield Difference(path, left, right, "value")
            return
        if (address(left), address(right)) in self._pairs:
            return
        self._pairs.add((address(left), address(right)))
        self._sharing.note(left, right, path)
        self.objects += 1
        if left is right:
            yield from self._compare_shared(left, path)
            return
        if kind in PROXIES and kind is type(right):  # It looks like what it points at.
            self._compare_targets(left, right, path)
            return
        held, other = opaque_contents(left), opaque_contents(right)
        is_opaque = held is not None and other is not None
        if not is_opaque and class_of(left) is not class_of(right):
            yield Difference(path, kind, type(right), "class")
            return
        yield from self._compare_ties(left, right, path)
        yield from self._sharing.compare_memory(left, right, path)
        if is_opaque:
            self.push(held, other, path)
        elif self._sharing.is_always_shared(left) and not means_the_same(left, right):
            yield Difference(path, left, right, "value")
        else:
            yield from self._compare_contents(left, right, path)

    def _compare_ids(self, left: int, right: int, path: str) -> Iterator[Difference]:
        place = address_by_id(left)
        if self._right_of.get(place, place) != address_by_id(right):
            yield Difference(path, left, right, "value")

    def _compare_shared(self, obj: Any, path: str) -> Iterator[Difference]:
        if is_weak(obj):
            self._compare_targets(obj, obj, path)
            return
        if isinstance(obj, tuple | frozenset):
            inside = [*obj, *attributes(obj).values()]
            self._queue.extend((part, part, path) for part in inside)
        elif isinstance(obj, types.MethodType):
            self._queue.append((obj.__self__, obj.__self__, path))
        else:
            yield from self._sharing.shared(obj, path)

    def _compare_ties(self, left: Any, right: Any, path: str) -> Iterator[Difference]:
        if isinstance(left, WITHOUT_IDENTITY):
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
            self.judge_later(partial(compare_producers, self, left, right, path))
        elif holds_objects(left) and holds_objects(right):
            self.push(left.shape, right.shape, f"{path}.shape")
            self.push(str(left.dtype), str(right.dtype), f"{path}.dtype")
            self.push(left.tolist(), right.tolist(), path)
        elif (found := differences_of_arrays(left, right, path)) is not None:
            yield from found
            for name in ("weak_type", "flags.writeable"):  # Of JAX and of numpy.
                self.push(ask(left, name), ask(right, name), f"{path}.{name}")
            if not is_of_a_framework(kind):
                self._compare_states(attributes(left), attributes(right), path)
        elif isinstance(left, types.FunctionType):
            yield from self._compare_functions(left, right, path)
        elif isinstance(left, types.MethodType):
            same = left.__func__ is right.__func__
            if not (same and _functions.is_shared_by_class(left, is_model_state)):
                self.push(left.__func__, right.__func__, f"{path}.__func__")
            self.push(left.__self__, right.__self__, f"{path}.__self__")
        elif isinstance(left, _functions.CachedFunction):
            limits = left.cache_parameters(), right.cache_parameters()
            self.push(*limits, f"{path}.cache_parameters()")
            self._compare_states(vars(left), vars(right), path)
        elif isinstance(left, partial):
            self.push(left.func, right.func, f"{path}.func")
            self.push(left.args, right.args, f"{path}.args")
            self.push(left.keywords, right.keywords, f"{path}.keywords")
            self._compare_states(vars(left), vars(right), path)
        elif isinstance(left, types.BuiltinMethodType | types.MethodWrapperType):
            self.push(left.__name__, right.__name__, f"{path}.__name__")
            self.push(left.__self__, right.__self__, f"{path}.__self__")
        elif isinstance(left, np.ufunc):
            mine, other = map(_functions.behind_ufunc, (left, right))
            if not mine:  # It is written in C, and there is one of each.
                yield Difference(path, left, right, "value")
            self.push(mine, other, path)
        elif isinstance(left, types.MappingProxyType):
            self.push(mapping_behind(left), mapping_behind(right), path)
        elif isinstance(left, WEAK_CONTAINERS):
            yield from compare_weakly(self, left, right, path)
        elif isinstance(left, weakref.ref):
            self._compare_targets(left, right, path)
        else:
            if is_value_class(kind) and not same_atom(left, right):
                yield Difference(path, left, right, "value")
            yield from compare_items(self, left, right, path)
            yield from self._compare_attributes(left, right, path)

    def _compare_targets(self, left: Any, right: Any, path: str) -> None:
        mine, other = target_of(left), target_of(right)
        if isinstance(mine, types.MethodType) and isinstance(other, types.MethodType):
            self.push(mine.__func__, other.__func__, f"{path}.__func__")
            mine, other = mine.__self__, other.__self__
        elif type(left) not in PROXIES:
            self.push(left.__callback__, right.__callback__, f"{path}.__callback__")
            self._compare_states(attributes(left), attributes(right), path)
        if isinstance(mine, types.FunctionType) and other is not None:
            self.push(mine, other, path)  # Functions have no identity.
            return
        self.point(address(mine), address(other), path, "weak reference")

    # --- kinds of objects --------------------------------------------------------

    def _compare_variables(
        self, left: Any, right: Any, path: str
    ) -> Iterator[Difference]:
        self.variables += 1
        old, new = _keras.raw_value(left), _keras.raw_value(right)
        state, other = _keras.variable_state(left), _keras.variable_state(right)
        yield from self._compare_owned(left, right, state, other, path)
        if old is None or new is None:
            if old is not new:
                yield Difference(path, left, right, "one of them has no value")
            return
        yield from self._sharing.compare_memory(old, new, path, (left, right))
        if not self._cleared.issuperset(map(address, (old, new))):
            gathered = self._backend.waiting_gradient
            self.push(gathered(old), gathered(new), f"{path}.grad")
        where, there = self._backend.placement(old), self._backend.placement(new)
        if where != there:
            yield Difference(path, where, there, "device or sharding")
        values = [list(named_values(x, path)) for x in (left, right)]
        if len(values[0]) != len(values[1]):  # Another strategy, or one of them none.
            values = [[(path, to_numpy(x))] for x in (left, right)]
        for (part, mine), (_, other) in zip(*values, strict=True):
            self.bytes += mine.nbytes
            yield from compare_arrays(mine, other, part)

    def _compare_tensors(self, left: Any, right: Any, path: str) -> None:
        states = _keras.tensor_state(left)[0], _keras.tensor_state(right)[0]
        if all(_keras.is_automatic_tensor_name(state["name"]) for state in states):
            for state in states:
                del state["name"]  # A counter's value, not somebody's choice.
        self._compare_states(*states, path)
        origins = [_keras.history(tensor) or (None, 0, 0) for tensor in (left, right)]
        if None not in (origins[0][0], origins[1][0]):  # Else from outside a graph.
            self.push(origins[0][0], origins[1][0], f"{path}.<made by>")
        self.push(origins[0][2], origins[1][2], f"{path}.<output number>")

    def _compare_functions(
        self, left: Any, right: Any, path: str
    ) -> Iterator[Difference]:
        is_same = left.__code__ == right.__code__
        if is_same and left.__globals__ is not right.__globals__:
            mine, other = map(_functions.globals_of_exec, (left, right))
            is_same = mine is not None and other is not None
            if is_same:
                self.push(mine, other, f"{path}.<globals>")
        if not is_same:
            yield Difference(path, left, right, "function")
            return
        for name in ("__name__", "__qualname__", "__doc__"):
            self.push(getattr(left, name), getattr(right, name), f"{path}.{name}")
        self.push(left.__defaults__, right.__defaults__, f"{path}.<defaults>")
        # Whoever shares a function shares these: only what is in them is compared.
        keywords = [dict(side.__kwdefaults__ or {}) for side in (left, right)]
        self.push(keywords[0], keywords[1], f"{path}.<defaults>")
        notes, others = map(_functions.annotations_of, (left, right))
        if notes != others:  # Copies share what is in them.
            yield Difference(f"{path}.<annotations>", notes, others, "value")
        self.push(dict(left.__dict__), dict(right.__dict__), f"{path}.<attributes>")
        cells = zip(left.__closure__ or (), right.__closure__ or (), strict=True)
        for name, (mine, other) in zip(left.__code__.co_freevars, cells, strict=True):
            where = f"{path}.<{name}>"
            yield from self._compare_ties(mine, other, where)
            if mine is other and name in _functions.rebound_names(left.__code__):
                yield Difference(where, mine, other, "shared by both models")
            self.push(content(mine), content(other), where)

    def _compare_attributes(
        self, left: Any, right: Any, path: str
    ) -> Iterator[Difference]:
        if isinstance(left, _keras.Layer):
            yield from self._compare_members(left, right, path)
        if not isinstance(left, _CONTAINERS) and not is_plain(left):
            yield from self._compare_opaque(left, right, path)
        if isinstance(left, _keras.Operation):
            self.judge_later(partial(compare_call_lists, self, left, right, path))
        if _keras.is_graph(left) and _keras.is_graph(right):
            self.judge_later(partial(compare_node_keys, left, right, path))
        state, other = attributes(left), attributes(right)
        yield from self._compare_owned(left, right, state, other, path)

    def _compare_owned(
        self,
        left: Any,
        right: Any,
        state: dict[str, Any],
        other: dict[str, Any],
        path: str,
    ) -> Iterator[Difference]:
        """Compares attributes; those that say nothing may not be shared either."""
        mine = _keras.forget_bookkeeping(left, state.copy())
        for name in state.keys() - mine.keys():
            if state[name] is other.get(name, NOTHING):
                yield from self._sharing.shared(state[name], f"{path}.{name}")
        self._compare_states(mine, _keras.forget_bookkeeping(right, other), path)

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
            self.push(mine, other, path)
        else:
            # Without the function that makes the object.
            self.push(list(mine[1:]), list(other[1:]), path)

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
                self.push(x, y, f"{path}/{x.name}")

    def _compare_states(
        self, left: dict[str, Any], right: dict[str, Any], path: str
    ) -> None:
        for name in left | right:
            mine, other = left.get(name, NOTHING), right.get(name, NOTHING)
            if name == "__annotations__" and mine is other:
                continue  # Those of the function that both models run.
            self.push(mine, other, f"{path}.{name}")


def _trainers(model: Any) -> list[Any]:
    layers = _keras.all_layers(model) if isinstance(model, _keras.Layer) else []
    return [layer for layer in layers if isinstance(layer, _keras.Trainer)]
