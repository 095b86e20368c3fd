"""How each class of object is copied.

A *maker* takes the walk and an object, notes the object's copy with
`walk.remember` and returns it. The copy of a mutable object is an empty shell
that asks to be filled later. `choose_maker` decides once per class.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import numpy as np

from . import _backends, _functions, _keras
from ._atoms import ATOMS, is_shared_class
from ._errors import CopyError, explain
from ._parts import slots_of

Maker = Callable[[Any, Any], Any]

_USER_COPIERS: dict[type, Maker] = {}


def set_copier(kind: type, maker: Maker) -> None:
    """Makes `maker` responsible for a class and its subclasses."""
    _USER_COPIERS[kind] = maker
    _CHOICES.clear()


def _share(walk: Any, obj: Any) -> Any:
    return walk.remember(obj, obj)


_share.shares = True  # type: ignore[attr-defined]


def refuse(walk: Any, obj: Any, reason: str) -> CopyError:
    """Builds the error for an object that cannot be copied."""
    kind = type(obj)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return CopyError(
        explain(
            f"An object of type `{name}` cannot be copied: {reason}",
            where=walk.path_of(obj),
            expected="something that can be copied, or a word on how to treat it",
            received=_short(obj),
            fix=f"share it between both models with `keep=({kind.__qualname__},)`, or "
            f"say how to copy it with "
            f"`regraft.register_copier({kind.__qualname__}, function)`",
        )
    )


def _short(obj: Any) -> str:
    try:
        text = repr(obj)
    except Exception:
        text = f"<{type(obj).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


# --- containers ---------------------------------------------------------------


def _make_list(walk: Any, obj: Any) -> Any:
    kind = type(obj)
    new = walk.memo[id(obj)] = list.__new__(kind)
    if _are_atoms(list.__iter__(obj)):
        list.extend(new, obj)
        if kind is list or _copy_simple_attributes(walk, obj, new):
            return new
    walk.fill_later(_fill_list, obj, new)
    return new


def _are_atoms(parts: Iterable[Any]) -> bool:
    """Tells whether both models can share all parts, so nothing need be put off."""
    return ATOMS.issuperset(map(type, parts))


def _copy_simple_attributes(walk: Any, obj: Any, new: Any) -> bool:
    """Copies attributes at once if each is simple or has been copied before."""
    kind: Any = type(obj)
    if not kind.__dictoffset__ or slots_of(kind):
        return False
    memo = walk.memo
    state = _get(obj, "__dict__").copy()
    if not _are_atoms(state.values()):
        for name, value in state.items():
            kind = type(value)
            if kind in ATOMS:
                continue
            if id(value) in memo:
                state[name] = memo[id(value)]
            elif kind is dict and not walk.keeps and _is_simple(value.items()):
                state[name] = memo[id(value)] = value.copy()
            else:
                return False
    _set(new, "__dict__", state)
    return True


_get, _set = object.__getattribute__, object.__setattr__


def _fill_items(walk: Any, obj: Any, new: Any) -> None:
    copy_of = walk.copy_of
    items = [x if type(x) in ATOMS else copy_of(x) for x in list.__iter__(obj)]
    list.clear(new)
    list.extend(new, items)


def _fill_list(walk: Any, obj: Any, new: Any) -> None:
    _fill_items(walk, obj, new)
    if type(obj) is not list:
        fill_attributes(walk, obj, new)


def _needs_hash(key: Any) -> bool:
    return type(key) not in ATOMS or _keras.is_identity_key(key)


def _make_dict(walk: Any, obj: Any) -> Any:
    kind = type(obj)
    if not obj and kind in (dict, OrderedDict):
        return walk.remember(obj, kind())
    base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
    new = walk.memo[id(obj)] = base.__new__(kind)
    if base is dict and _is_simple(dict.items(obj)):
        dict.update(new, obj)
        if kind is dict:
            return new
        plain = not issubclass(kind, defaultdict)
        if plain and _copy_simple_attributes(walk, obj, new):
            return new
    walk.fill_later(_fill_dict, obj, new)
    return new


def _is_simple(items: Iterable[tuple[Any, Any]]) -> bool:
    """Tells whether a dict holds nothing but atoms, and tuples of them."""
    for key, value in items:
        kind = type(value)
        if kind not in ATOMS and not (kind is tuple and _are_atoms(value)):
            return False
        if type(key) is not str and _needs_hash(key):
            return False
    return True


def _fill_dict(walk: Any, obj: Any, new: Any) -> None:
    copy_of = walk.copy_of
    kind = type(obj)
    if kind is dict and _NAMES.issuperset(map(type, obj)):
        walk.copy_items(obj, new)
        return
    base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
    if issubclass(kind, defaultdict):
        new.default_factory = copy_of(obj.default_factory)
    items = [(k, v if type(v) in ATOMS else copy_of(v)) for k, v in base.items(obj)]

    def put(translate: Callable[[Any], Any]) -> None:
        base.clear(new)
        for key, value in items:
            base.__setitem__(new, translate(key), value)

    if any(_needs_hash(key) for key, _ in items):
        for key, _ in items:
            copy_of(key)
        walk.hash_later(lambda: put(walk.new_key))
    else:
        put(_unchanged)
    if kind is not dict:
        fill_attributes(walk, obj, new)


_NAMES = frozenset({str})


def _unchanged(key: Any) -> Any:
    return key


def _make_set(walk: Any, obj: Any) -> Any:
    kind = type(obj)
    new = walk.remember(obj, set.__new__(kind))
    if not any(_needs_hash(item) for item in set.__iter__(obj)):
        set.update(new, obj)
        if kind is set or _copy_simple_attributes(walk, obj, new):
            return new
    walk.fill_later(_fill_set, obj, new)
    return new


def _fill_set(walk: Any, obj: Any, new: Any) -> None:
    items = list(set.__iter__(obj))
    if any(_needs_hash(item) for item in items):
        for item in items:
            walk.copy_of(item)
        walk.hash_later(lambda: set.update(new, map(walk.new_key, items)))
    else:
        set.update(new, items)
    if type(obj) is not set:
        fill_attributes(walk, obj, new)


def _make_deque(walk: Any, obj: Any) -> Any:
    kind = type(obj)
    new = deque.__new__(kind)
    deque.__init__(new, (), obj.maxlen)
    walk.remember(obj, new)

    def fill(walk: Any, obj: Any, new: Any) -> None:
        deque.clear(new)
        deque.extend(new, [walk.copy_of(x) for x in obj])
        if kind is not deque:
            fill_attributes(walk, obj, new)

    walk.fill_later(fill, obj, new)
    return new


def _make_tuple(walk: Any, obj: Any) -> Any:
    """Builds nested tuples from the inside out, without recursing."""
    memo = walk.memo
    if type(obj) is tuple:
        if _are_atoms(obj):
            memo[id(obj)] = obj
            return obj
        if not any(isinstance(part, tuple) for part in obj):
            new = tuple(map(walk.copy_of, obj))
            memo[id(obj)] = new = obj if all(map(is_, new, obj)) else new
            return new
    stack = [obj]
    while stack:
        top = stack[-1]
        if id(top) in memo:
            stack.pop()
            continue
        inner = [
            part
            for part in tuple.__iter__(top)
            if type(part) not in ATOMS
            and id(part) not in memo
            and walk.maker(part) is _make_tuple
        ]
        if inner:
            stack.extend(inner)
            continue
        stack.pop()
        parts = [walk.copy_of(part) for part in tuple.__iter__(top)]
        pairs = zip(parts, tuple.__iter__(top), strict=True)
        if all(part is old for part, old in pairs) and not hasattr(top, "__dict__"):
            memo[id(top)] = top
        else:
            new = walk.remember(top, tuple.__new__(type(top), parts))
            if type(top) is not tuple:
                fill_attributes(walk, top, new)
    return memo[id(obj)]


def _make_frozenset(walk: Any, obj: Any) -> Any:
    parts = [walk.copy_of(part) for part in obj]
    same = all(part is old for part, old in zip(parts, obj, strict=True))
    return walk.remember(obj, obj if same else type(obj)(parts))


def _make_array(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, obj.copy(order="K"))
    if obj.dtype.hasobject:

        def fill(walk: Any, obj: Any, new: Any) -> None:
            for i, item in enumerate(obj.flat):
                new.flat[i] = walk.copy_of(item)

        walk.fill_later(fill, obj, new)
    if type(obj) is not np.ndarray:
        fill_attributes(walk, obj, new)
    return new


def _make_bytearray(walk: Any, obj: Any) -> Any:
    return walk.remember(obj, type(obj)(obj))


def _make_mapping_proxy(walk: Any, obj: Any) -> Any:
    plain = walk.hold(dict(obj))
    return walk.remember(obj, types.MappingProxyType(walk.copy_of(plain)))


# --- functions ----------------------------------------------------------------


def _make_function(walk: Any, obj: Any) -> Any:
    walk.functions.append(obj)
    carries = obj.__closure__ or obj.__defaults__ or obj.__kwdefaults__ or obj.__dict__
    if not carries or not walk.must_copy(obj):
        return walk.remember(obj, obj)
    new = walk.remember(
        obj, _functions.hollow_copy(obj, functools.partial(_make_cell, walk))
    )
    walk.fill_later(_fill_function, obj, new)
    return new


def _fill_function(walk: Any, obj: Any, new: Any) -> None:
    new.__defaults__ = walk.copy_of(obj.__defaults__)
    if obj.__kwdefaults__:
        new.__kwdefaults__ = {k: walk.copy_of(v) for k, v in obj.__kwdefaults__.items()}
    walk.copy_items(obj.__dict__, new.__dict__)


def _make_cell(walk: Any, obj: Any) -> Any:
    if id(obj) in walk.memo:
        return walk.memo[id(obj)]
    new = walk.remember(obj, types.CellType())
    walk.fill_later(_fill_cell, obj, new)
    return new


def _fill_cell(walk: Any, obj: Any, new: Any) -> None:
    try:
        content = obj.cell_contents
    except ValueError:  # An empty cell stays empty.
        return
    new.cell_contents = walk.copy_of(content)


def _make_method(walk: Any, obj: Any) -> Any:
    function, owner = walk.copy_of(obj.__func__), walk.copy_of(obj.__self__)
    if function is obj.__func__ and owner is obj.__self__:
        return walk.remember(obj, obj)
    return walk.remember(obj, types.MethodType(function, owner))


def _make_builtin_method(walk: Any, obj: Any) -> Any:
    owner = getattr(obj, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType | type):
        return walk.remember(obj, obj)
    new_owner = walk.copy_of(owner)
    same = new_owner is owner
    return walk.remember(obj, obj if same else getattr(new_owner, obj.__name__))


def _make_partial(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, functools.partial.__new__(type(obj), len))

    def fill(walk: Any, obj: Any, new: Any) -> None:
        keywords = {k: walk.copy_of(v) for k, v in obj.keywords.items()}
        own = {k: walk.copy_of(v) for k, v in vars(obj).items()}
        args = walk.copy_of(obj.args)
        new.__setstate__((walk.copy_of(obj.func), args, keywords, own or None))

    walk.fill_later(fill, obj, new)
    return new


# --- weak references ------------------------------------------------------------


def _make_reference(walk: Any, obj: Any) -> Any:
    return walk.note_reference(obj)


def _make_weak_set(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, type(obj)())
    members = list(obj)
    walk.hash_later(lambda: new.update(walk.known(m) or m for m in members))
    return new


def _make_weak_keys(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, type(obj)())
    items = [(k, walk.copy_of(v)) for k, v in obj.items()]
    walk.hash_later(lambda: new.update({walk.known(k) or k: v for k, v in items}))
    return new


def _make_weak_values(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, type(obj)())
    items = [(walk.copy_of(k), v) for k, v in obj.items()]
    walk.hash_later(lambda: new.update({k: walk.known(v) or v for k, v in items}))
    return new


# --- plain instances --------------------------------------------------------------


def fill_attributes(walk: Any, obj: Any, new: Any) -> None:
    """Copies what an instance keeps in its dict and slots."""
    kind = type(obj)
    if kind.__dictoffset__:
        target = object.__getattribute__(new, "__dict__")
        walk.copy_items(object.__getattribute__(obj, "__dict__"), target)
    _fill_slots(walk, obj, new)


def _fill_slots(walk: Any, obj: Any, new: Any) -> None:
    kind: Any = type(obj)
    for _, member in slots_of(kind):
        try:
            value = member.__get__(obj)
        except AttributeError:  # An empty slot.
            continue
        member.__set__(new, walk.copy_of(value))


def _make_instance(walk: Any, obj: Any) -> Any:
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    if not _copy_simple_attributes(walk, obj, new):
        walk.fill_later(fill_attributes, obj, new)
    return new


def _make_by_deepcopy(walk: Any, obj: Any) -> Any:
    """Asks a class that says itself how it is copied.

    Its `__deepcopy__` sees the walk's memo: parts of the model that it reaches
    come out as the parts of the copy.
    """
    try:
        return walk.remember(obj, obj.__deepcopy__(_DeepcopyMemo(walk)))
    except (TypeError, AttributeError) as error:
        raise refuse(walk, obj, f"its `__deepcopy__` failed ({error})") from error


class _DeepcopyMemo(dict[int, Any]):
    """The memo of `copy.deepcopy`, answered by the walk."""

    def __init__(self, walk: Any) -> None:
        super().__init__()
        self._walk = walk

    def get(self, key: Any, default: Any = None) -> Any:
        found = dict.get(self, key, default)
        return self._walk.memo.get(key, found)


# What classes raise that do not let themselves be pickled.
_CANNOT_REDUCE = (
    TypeError,
    AttributeError,
    ValueError,
    NotImplementedError,
    copy.Error,
)


def _make_by_reduce(walk: Any, obj: Any) -> Any:
    """Follows the protocol of `pickle`, for classes that define it."""
    try:
        reduced = walk.hold(obj.__reduce_ex__(4))
    except _CANNOT_REDUCE as error:
        raise refuse(walk, obj, str(error)) from error
    if isinstance(reduced, str):  # The name of a global: a singleton.
        return walk.remember(obj, obj)
    function, args, state, items, pairs = (*reduced, None, None, None)[:5]
    try:
        new = function(*(walk.copy_of(arg) for arg in args))
    except CopyError as error:  # Parts of a C object cannot be reached by a path.
        raise refuse(walk, obj, "a part of it cannot be copied") from error
    walk.remember(obj, new)

    def fill(walk: Any, obj: Any, new: Any) -> None:
        if state is not None:
            _set_state(new, walk.copy_of(state))
        for item in items or ():
            new.append(walk.copy_of(item))
        for key, value in pairs or ():
            new[walk.copy_of(key)] = walk.copy_of(value)

    # The state's copy must be complete before an object's own `__setstate__`
    # reads it, so it is filled after everything else that is pending.
    if state is not None:
        walk.copy_of(state)
    walk.hash_later(lambda: fill(walk, obj, new))
    for part in (*(items or ()), *(x for pair in (pairs or ()) for x in pair)):
        walk.copy_of(part)
    return new


def _set_state(new: Any, state: Any) -> None:
    if hasattr(new, "__setstate__"):
        new.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        new.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(new, name, value)


# --- Keras ------------------------------------------------------------------------


def _make_variable(walk: Any, obj: Any) -> Any:
    stand_in = walk.rules.variable(obj)
    if stand_in is not None:
        return walk.remember(obj, stand_in)
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    walk.variables.append((obj, new))
    state = _keras.variable_state(obj)
    if _is_simple(state.items()):
        _set(new, "__dict__", state)
    else:
        walk.fill_later(_fill_variable, obj, new)
    return new


def _fill_variable(walk: Any, obj: Any, new: Any) -> None:
    walk.copy_items(_keras.variable_state(obj), vars(new))


def _make_tensor(walk: Any, obj: Any) -> Any:
    """Copies a symbolic tensor and, unless it was cut off, what produced it."""
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    walk.fill_later(_fill_tensor, obj, new)
    return new


def _fill_tensor(walk: Any, obj: Any, new: Any) -> None:
    walk.copy_items(_keras.tensor_state(obj), vars(new))
    if _keras.history(obj) is not None:
        walk.note_tensor(obj, new)
        if not walk.is_cut(obj):
            walk.copy_of(_keras.producer(obj))


def _make_operation(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, object.__new__(type(obj)))
    walk.operations.append((obj, new))
    walk.fill_later(_fill_operation, obj, new)
    return new


def _fill_operation(walk: Any, obj: Any, new: Any) -> None:
    if isinstance(obj, _keras.Trainer):
        _keras.jax_sync(obj)
    state = vars(obj).copy()
    _make_standard_parts(walk, state)
    # Node lists come before other attributes, which may hold the same lists:
    # following those would drag in the calls of other models.
    for name in _keras.NODE_LISTS:
        if name in state:
            _hollow_list(walk, state[name], name)
    for name in _keras.LOSS_LISTS:
        losses = state.get(name)
        if losses and not all(walk.backend.is_concrete(loss) for loss in losses):
            _hollow_list(walk, losses, name)
    if _keras.is_graph(obj):
        walk.note_graph(obj, new)
        for tensor in _keras.foreign_inputs(obj):
            walk.cut(tensor)
        state.pop("_nodes", None)
    if isinstance(obj, _keras.Trainer):
        for name, value in _keras.RUNTIME_STATE.items():
            if name in state:
                state[name] = value
    walk.rules.attributes(obj, state)
    _keras.rebind_wrappers(obj, new, state, walk.memo)
    walk.translate(state)
    _set(new, "__dict__", state)
    _fill_slots(walk, obj, new)


def _make_standard_parts(walk: Any, state: dict[str, Any]) -> None:
    for part, shell in _keras.copy_standard_parts(state, walk.memo):
        if type(part) is list:
            shell.extend(map(walk.copy_of, part))
        else:
            _keras.copy_tracker(part, shell, walk.copy_of)
            walk.note_tracker(part, shell)


def _hollow_list(walk: Any, nodes: Any, name: str) -> None:
    """Makes a list of the same class, for what will turn out to be the copy's."""
    memo = walk.memo
    if id(nodes) in memo:
        return
    kind = type(nodes)
    new = memo[id(nodes)] = list.__new__(kind)
    inbound = name == _keras.NODE_LISTS[0]
    walk.note_node_list(nodes, new, inbound=inbound)
    if kind is list:
        return
    target = new.__dict__
    for attribute, value in nodes.__dict__.items():
        if id(value) in memo:
            target[attribute] = memo[id(value)]
        elif type(value) is list:  # TensorFlow's wrapper keeps the items here.
            target[attribute] = inner = walk.remember(value, [])
            walk.note_node_list(value, inner, inbound=inbound)
        else:
            target[attribute] = walk.copy_of(value)


def _make_node(walk: Any, obj: Any) -> Any:
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    walk.fill_later(_fill_node, obj, new)
    return new


def _fill_node(walk: Any, obj: Any, new: Any) -> None:
    _keras.copy_node(obj, new, walk.copy_of)


def _make_tracker(walk: Any, obj: Any) -> Any:
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    walk.fill_later(_fill_tracker, obj, new)
    walk.note_tracker(obj, new)
    return new


def _fill_tracker(walk: Any, obj: Any, new: Any) -> None:
    _keras.copy_tracker(obj, new, walk.copy_of)


def _noting(collection: str) -> Maker:
    """Returns a maker of instances that also lists the pair on the walk."""

    def make(walk: Any, obj: Any) -> Any:
        new = _make_instance(walk, obj)
        getattr(walk, collection).append((obj, new))
        return new

    return make


# --- the choice ---------------------------------------------------------------------

_KERAS: dict[type, Maker] = {
    _keras.Variable: _make_variable,
    _keras.KerasTensor: _make_tensor,
    _keras.Operation: _make_operation,
    _keras.BaseOptimizer: _noting("optimizers"),
    _keras.Metric: _noting("metrics"),
    _keras.SeedGenerator: _noting("seed_generators"),
    _keras.Initializer: _noting("initializers"),
    _keras.Node: _make_node,
    _keras.Tracker: _make_tracker,
    _keras.KerasSaveable: _make_instance,
}

_PYTHON: dict[type, Maker] = {
    list: _make_list,
    dict: _make_dict,
    set: _make_set,
    deque: _make_deque,
    tuple: _make_tuple,
    frozenset: _make_frozenset,
    np.ndarray: _make_array,
    bytearray: _make_bytearray,
    types.MappingProxyType: _make_mapping_proxy,
    types.FunctionType: _make_function,
    types.CellType: _make_cell,
    types.MethodType: _make_method,
    types.BuiltinMethodType: _make_builtin_method,
    types.MethodWrapperType: _make_builtin_method,
    functools.partial: _make_partial,
    weakref.ref: _make_reference,
    weakref.WeakSet: _make_weak_set,
    weakref.WeakKeyDictionary: _make_weak_keys,
    weakref.WeakValueDictionary: _make_weak_values,
}


# What was decided for a class, and how many frameworks were known by then.
_CHOICES: weakref.WeakKeyDictionary[type, tuple[int, Maker]] = (
    weakref.WeakKeyDictionary()
)


def choose_maker(obj: Any) -> Maker:
    """Decides how objects of the class of `obj` are copied."""
    kind = type(obj)
    frameworks = _backends.loaded()
    known, maker = _CHOICES.get(kind, (None, None))
    if maker is None or known != len(frameworks):
        maker = _choose(obj, kind, frameworks)
        _CHOICES[kind] = len(frameworks), maker
    return maker


def _choose(obj: Any, kind: Any, frameworks: list[Any]) -> Maker:
    found = _by_class(kind, _USER_COPIERS)
    if found is not None:
        return found
    if is_shared_class(kind) or _keras.is_surroundings(kind):
        return _share
    found = _by_class(kind, _KERAS)
    if found is not None:
        return found
    for framework in frameworks:
        if issubclass(kind, framework.shared_types()):
            return _share
        copier = _by_instance(obj, framework.copiers())
        if copier is not None:
            return functools.partial(_make_by_copier, copier)
    found = _by_class(kind, _PYTHON)
    if found is not None:
        return found
    if hasattr(kind, "__deepcopy__"):
        return _make_by_deepcopy
    return _make_instance if _has_plain_class(kind, obj) else _make_by_reduce


def _make_by_copier(copier: Maker, walk: Any, obj: Any) -> Any:
    new = copier(obj, walk)
    return walk.remember(obj, new)


def _by_class(kind: type, makers: dict[type, Maker]) -> Maker | None:
    return next((makers[base] for base in kind.__mro__ if base in makers), None)


def _by_instance(obj: Any, copiers: dict[type, Maker]) -> Maker | None:
    # Abstract classes (`jax.Array`) are not in the mro of their instances.
    return next((c for base, c in copiers.items() if isinstance(obj, base)), None)


def is_plain(obj: Any) -> bool:
    """Tells whether an object is nothing but its attributes."""
    return choose_maker(obj) not in (_make_by_reduce, _make_by_deepcopy)


def _has_plain_class(kind: type, obj: Any) -> bool:
    customs = ("__reduce_ex__", "__reduce__", "__getstate__")
    if any(getattr(kind, name) is not getattr(object, name) for name in customs):
        return False
    if hasattr(kind, "__getnewargs_ex__") or hasattr(kind, "__getnewargs__"):
        return False
    try:  # Asks Python whether the class hides state in C.
        reduced: Any = object.__reduce_ex__(obj, 4)
    except TypeError:
        return False
    made_by, args, *_ = reduced
    return made_by.__name__ == "__newobj__" and args == (kind,)
