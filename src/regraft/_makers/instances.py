"""Makers of instances: by attribute, by `__deepcopy__` or by `__reduce_ex__`."""

from __future__ import annotations

import copy
import dis
import re
import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from .._atoms import ATOMS, is_of_a_common_library
from .._core import are_atoms, are_names, instance_maker
from .._errors import CopyError, RegraftError
from .._identity import address, address_by_id, may_be_id
from .._parts import ERROR_PARTS, parts, slots_of
from .base import Maker, refuse


def fill_attributes(walk: Any, obj: Any, new: Any) -> None:
    """Copies what an instance keeps in its dict and slots."""
    kind = type(obj)
    if kind.__dictoffset__:
        state = object.__getattribute__(obj, "__dict__")
        own = object.__getattribute__(new, "__dict__")
        known = walk.memo.get(address(state))
        if known is None or known is own:
            walk.copy_items(state, own)
        else:  # A dict that is met elsewhere, often the object itself.
            object.__setattr__(new, "__dict__", known)
    fill_slots(walk, obj, new)


def fill_slots(walk: Any, obj: Any, new: Any) -> None:
    kind: Any = type(obj)
    for _, member in slots_of(kind):
        try:
            value = member.__get__(obj)
        except AttributeError:  # An empty slot.
            continue
        copied = walk.copy_of(value)
        with suppress(AttributeError):  # C code has some that it alone may set.
            member.__set__(new, copied)


def make_instance(walk: Any, obj: Any) -> Any:
    """Makes an instance of any class, whatever that does when it is made."""
    new = walk.remember(obj, object.__new__(type(obj)))
    walk.fill_later(fill_attributes, obj, new)
    return new


def instance_tailor(kind: Any) -> Maker:
    """Returns a maker of instances, which knows how the class keeps attributes."""
    return instance_maker(fill_attributes) if is_open(kind) else make_instance


def is_open(kind: Any) -> bool:
    """Tells whether instances of a class are a dict of attributes, and no more."""
    return bool(kind.__dictoffset__) and not slots_of(kind)


def has_no_attributes(kind: Any) -> bool:
    """Tells whether instances of a class have no place for attributes."""
    return not kind.__dictoffset__ and not slots_of(kind)


def lone_instance_maker(kind: Any) -> Maker:
    """Returns a maker of instances, some of which may be the only ones of their kind.

    `MISSING = Missing()` in a module says by its identity what it says; code asks
    whether a value `is MISSING`. It is shared as the class is, as long as there is
    nothing on it but its name. So is what a class makes but once.
    """
    if hasattr(kind, "__del__"):
        return _refuse_to_delete
    if _makes_one(kind):
        return _make_single_instance
    if _has_constants(kind):
        return _make_constant
    customs = ("__getattribute__", "__setattr__")
    if any(getattr(kind, name) is not getattr(object, name) for name in customs):
        return instance_tailor(kind)
    if not is_open(kind):
        return make_instance
    return instance_maker(fill_attributes, stands_alone=_is_sentinel)


def _makes_one(kind: Any) -> bool:
    """Tells whether a class says how instances are made, and keeps one of them."""
    return any(type(found) is kind for found in _kept_by(kind))


def _kept_by(kind: Any) -> Iterator[Any]:
    """Yields what a class keeps, by a name or for each class, to return it again."""
    makers = [
        maker
        for maker in (kind.__new__, type(kind).__call__)
        if isinstance(maker, types.FunctionType)
    ]
    if not makers:
        return
    for base in (*kind.__mro__, *type(kind).__mro__):
        for name, value in vars(base).items():
            if any(_returns_again(maker, name) for maker in makers):
                yield value.get(kind) if type(value) is dict else value


def _returns_again(maker: types.FunctionType, name: str) -> bool:
    """Tells whether a function asks first whether there is something by a name.

    One that only writes it down, as the last that was made, asks nothing.
    """
    names = maker.__code__.co_names
    if name not in names:
        return False
    code = list(dis.get_instructions(maker))
    reads = any(x.argval == name and x.opname.startswith("LOAD") for x in code)
    asks = any("JUMP" in x.opname for x in code) or "setdefault" in names
    return reads and asks


def _make_single_instance(walk: Any, obj: Any) -> Any:
    is_kept = any(found is obj for found in _kept_by(type(obj)))
    return walk.remember(obj, obj) if is_kept else make_instance(walk, obj)


def _refuse_to_delete(walk: Any, obj: Any) -> Any:
    reason = "its `__del__` would be called for the copy, on what the original uses"
    raise refuse(walk, obj, reason)


def _has_constants(kind: Any) -> bool:
    """Tells whether a class names instances of its own that never change.

    `Mode.FAST = Mode("fast")` is how people write an `Enum` by hand.
    """
    has_any = any(type(found) is kind for found in _constants_of(kind))
    return has_any and is_open(kind) and _never_changes(kind)


def _constants_of(kind: Any) -> Iterator[Any]:
    for base in kind.__mro__[:-1]:
        yield from (found for name, found in vars(base).items() if name.isupper())


def _make_constant(walk: Any, obj: Any) -> Any:
    """Shares what code asks for by `is`, if there is nothing on it but values."""
    state = obj.__dict__
    is_constant = any(found is obj for found in _constants_of(type(obj)))
    if not is_constant and len(state) <= 1 and are_names(state.values()):
        is_constant = _is_sentinel(walk, obj)
    is_shared = is_constant and are_atoms(state.values())
    return walk.remember(obj, obj) if is_shared else make_instance(walk, obj)


def _is_sentinel(walk: Any, obj: Any) -> bool:
    """Tells whether an object says what it says by its identity alone."""
    state = obj.__dict__
    names = _names_in_code(obj)
    if state:  # `MISSING = Missing("missing")`, not `phase = Phase("phase")`.
        names = [name for name in names if not name.islower()]
    is_named = names and all(_is_label(label, names) for label in state.values())
    kind: Any = type(obj)
    return bool(is_named) and _never_changes(kind)


@lru_cache(maxsize=4096)
def _never_changes(kind: Any) -> bool:
    """Tells whether a class has no defaults of attributes, and no code that sets any.

    Its constructor may: that has been.
    """
    for base in kind.__mro__[:-1]:
        for name, value in vars(base).items():
            if isinstance(value, types.FunctionType):
                code = dis.get_instructions(value)
                if name != "__init__" and any(map(_sets_attributes, code)):
                    return False
            elif not name.startswith("__") and type(value) in ATOMS - {str}:
                return False
    return True


def _sets_attributes(step: dis.Instruction) -> bool:
    return step.opname == "STORE_ATTR" or step.argval in ("setattr", "__dict__")


def _global_names(obj: Any) -> list[str]:
    """Returns the names by which the module of an object's class holds the object."""
    return [name for name, found in names_around(obj).items() if found is obj]


def _names_in_code(obj: Any) -> list[str]:
    """Returns these names, and constants in the bodies of classes of that module."""
    around = list(names_around(obj).values())
    mine = [x for x in around if isinstance(x, type) and x.__module__ == _module(obj)]
    in_classes = (pair for kind in mine for pair in list(vars(kind).items()))
    constants = (name for name, x in in_classes if x is obj and name.isupper())
    return [*_global_names(obj), *constants]


def _is_label(text: str, names: list[str]) -> bool:
    """Tells whether a text is one of the names, as people write them: `<missing>`."""
    letters = re.sub(r"[\W_]", "", text).lower()
    return any(letters == name.replace("_", "").lower() for name in names)


def names_around(obj: Any) -> dict[str, Any]:
    """Returns what the module of an object's class holds by name."""
    module = sys.modules.get(_module(obj))
    return {} if module is None else vars(module)


def _module(obj: Any) -> str:
    return getattr(type(obj), "__module__", None) or ""


def copy_by_attributes(obj: Any, walk: Any) -> Any:
    """Copies what is nothing but its attributes, whatever its class says of pickles."""
    new = object.__new__(type(obj))
    walk.fill_later(fill_attributes, obj, new)
    return new


def make_namespace(walk: Any, obj: Any) -> Any:
    """Copies a namespace as any object, though its class says how it is pickled."""
    if walk.known(vars(obj)) is not None:
        reason = (
            "the dict of its attributes is held by another object, and a namespace "
        )
        raise refuse(walk, obj, reason + "cannot be given the copy of that")
    new = walk.remember(obj, types.SimpleNamespace.__new__(type(obj)))
    walk.remember(vars(obj), vars(new))
    walk.fill_later(fill_attributes, obj, new)
    return new


def make_value(walk: Any, obj: Any) -> Any:
    """Copies a date, a path or the like, on which there may be attributes."""
    new = copy.copy(obj)
    if new is obj:
        make, args, *_ = obj.__reduce_ex__(4)
        new = make(*args)
    if hasattr(new, "__dict__"):
        walk.fill_later(fill_dict, obj, new)
    return walk.remember(obj, new)


def fill_dict(walk: Any, obj: Any, new: Any) -> None:
    """Copies what an object keeps in its dict, apart from its slots."""
    walk.copy_items(vars(obj), vars(new))


def make_by_deepcopy(walk: Any, obj: Any) -> Any:
    """Asks a class that says itself how it is copied.

    Its `__deepcopy__` sees the walk's memo: parts of the model that it reaches
    come out as the parts of the copy, and the walk meets what it copied.
    """
    walk.meet(*(part for _, part in parts(obj)))
    if walk.deepcopied is None:
        walk.deepcopied = _DeepcopyMemo(walk)
    try:
        new = obj.__deepcopy__(walk.deepcopied)
    except (RegraftError, MemoryError):
        raise
    except Exception as error:  # Whatever a class raises.
        raise refuse(walk, obj, f"its `__deepcopy__` failed ({error!r})") from error
    if walk.holds_originals(*(part for _, part in parts(new))):
        raise refuse(walk, obj, "its `__deepcopy__` keeps what is to be copied")
    return walk.remember(obj, new)


class _DeepcopyMemo(dict[int, Any]):
    """The memo of `copy.deepcopy`, by ids, which is also the walk's."""

    def __init__(self, walk: Any) -> None:
        super().__init__()
        self._memo = walk.memo

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: Any) -> bool:
        return self._is_known(key) or dict.__contains__(self, key)

    def __getitem__(self, key: Any) -> Any:
        if self._is_known(key):
            return self._memo[address_by_id(key)]
        return dict.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        dict.__setitem__(self, key, value)
        if type(key) is int:
            self._memo.setdefault(address_by_id(key), value)

    def _is_known(self, key: Any) -> bool:
        """Tells whether this is an id, and the walk has the object's copy."""
        return type(key) is int and address_by_id(key) in self._memo


def make_by_reduce(walk: Any, obj: Any) -> Any:
    """Follows the protocol of `pickle`, for classes that define it."""
    if is_of_a_common_library(type(obj)) and _global_names(obj):
        return walk.remember(obj, obj)  # The generator behind `np.random.rand`.
    if walk.is_completing(obj) and is_written_in_python(type(obj)):
        # What it is made from holds it in turn, so that neither can come first.
        return make_instance(walk, obj)
    try:
        reduced = walk.hold(obj.__reduce_ex__(4))
    except Exception as error:  # Whatever a class raises that cannot be pickled.
        raise refuse(walk, obj, str(error)) from error
    if isinstance(reduced, str):  # The name of a global: a singleton.
        if not _is_known_by(reduced, obj):
            raise refuse(walk, obj, f"no module knows it as {reduced!r}")
        return walk.remember(obj, obj)
    if not isinstance(reduced, tuple) or not 2 <= len(reduced) <= 6:
        raise refuse(walk, obj, f"its `__reduce_ex__` returned {reduced!r}")
    function, args, state, items, pairs, set_state = (*reduced, *[None] * 4)[:6]
    if not isinstance(args, tuple):
        raise refuse(walk, obj, f"its `__reduce_ex__` returned {reduced!r}")
    items, pairs = list(items or ()), list(pairs or ())  # They may be iterators.
    try:
        maker, *copies = [walk.copy_of(part) for part in (function, *args)]
        if not are_atoms((function, *args)) and not walk.complete(obj, function, *args):
            return walk.memo[address(obj)]
    except CopyError as error:  # Parts of a C object cannot be reached by a path.
        raise refuse(walk, obj, "a part of it cannot be copied") from error
    try:
        new = maker(*copies)
    except Exception as error:  # Whatever a constructor raises.
        raise refuse(walk, obj, f"making it again failed ({error!r})") from error
    if isinstance(obj, Iterator) and type(new) is not type(obj):
        raise refuse(walk, obj, f"it would become a `{type(new).__qualname__}`")
    walk.remember(obj, new)

    def fill(walk: Any, obj: Any, new: Any) -> None:
        try:
            if state is not None and set_state is not None:
                set_state(new, walk.copy_of(state))
            elif state is not None:
                _set_state(obj, new, walk.copy_of(state))
        except Exception as error:  # Whatever a `__setstate__` raises.
            raise refuse(walk, obj, f"setting its state failed ({error!r})") from error
        for item in items:
            new.append(walk.copy_of(item))
        for key, value in pairs:
            new[walk.copy_of(key)] = walk.copy_of(value)
        if type(new) is type(obj) and new is not obj:
            walk.fill_later(_copy_what_can_be, obj, new)

    # The state's copy must be complete before an object's own `__setstate__`
    # reads it, so it is filled after everything else that is pending.
    if state is not None:
        walk.copy_of(state)
    inside = [*items, *(x for pair in pairs for x in pair)]
    walk.hash_later(obj, lambda: fill(walk, obj, new), [state, *inside])
    for part in inside:
        walk.copy_of(walk.hold(part))
    return new


def _is_known_by(name: str, obj: Any) -> bool:
    """Tells whether a module, or a class in it, holds an object by a name."""
    first, *rest = name.split(".")
    for module in list(sys.modules.values()):
        found = getattr(module, "__dict__", {}).get(first)
        for part in rest:
            found = getattr(found, part, None)
        if found is obj:
            return True
    return False


def is_written_in_python(kind: type) -> bool:
    """Tells whether a class has no base, apart from `object`, that is written in C."""
    is_heap_type = 1 << 9
    return all(base is object or base.__flags__ & is_heap_type for base in kind.__mro__)


def _copy_what_can_be(walk: Any, obj: Any, new: Any) -> None:
    """Gives a copy the attributes of its original, whatever pickles say of them.

    A class leaves out of pickles, or empties, what would make them large, what can be
    worked out, and what cannot be written. The last is as the class made it anew, and
    so are the numbers by which C code knows what it made.
    """
    if isinstance(obj, BaseException):
        for name in ERROR_PARTS:
            setattr(new, name, walk.copy_of(getattr(obj, name)))
    mine = getattr(new, "__dict__", None)
    if type(mine) is not dict:
        return
    for name, value in vars(obj).items():
        if type(value) in ATOMS:
            if name not in mine or not may_be_id(value):
                mine[name] = value
        elif walk.can_copy(value):
            mine[name] = walk.copy_of(value)


def _set_state(obj: Any, new: Any, state: Any) -> None:
    if hasattr(new, "__setstate__"):
        new.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        # A class may write into a pickle what it has, and the original has not.
        own = getattr(obj, "__dict__", state) if type(new) is type(obj) else state
        new.__dict__.update({name: state[name] for name in state if name in own})
    for name, value in (slots or {}).items():
        setattr(new, name, value)
