"""Makers of functions, the cells they close over, methods and partials."""

from __future__ import annotations

import functools
import types
from operator import is_
from typing import Any

import numpy as np

from .. import _functions
from .._identity import address
from .._parts import is_model_state
from .base import Maker
from .instances import fill_dict, names_around


def _make_function(walk: Any, obj: Any) -> Any:
    walk.functions.append(obj)
    carries = obj.__closure__ or obj.__defaults__ or obj.__kwdefaults__ or obj.__dict__
    if not carries or not walk.must_copy(obj):
        return walk.remember(obj, obj)
    walk.note_rebound(_functions.rebound_cells(obj))
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
    if address(obj) in walk.memo:
        return walk.memo[address(obj)]
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
    if _is_of_a_module(walk, obj):
        return walk.remember(obj, obj)
    function, owner = obj.__func__, walk.copy_of(obj.__self__)
    if not _functions.is_shared_by_class(obj, is_model_state):
        function = walk.copy_of(function)
    if function is obj.__func__ and owner is obj.__self__:
        return walk.remember(obj, obj)
    return walk.remember(obj, types.MethodType(function, owner))


def _is_of_a_module(walk: Any, method: Any) -> bool:
    """Tells whether a method is a function of its module: `np.random.normal` is."""
    owner = method.__self__
    if address(owner) in walk.memo or is_model_state(owner):
        return False
    known = names_around(owner).get(method.__name__)
    return type(known) is type(method) and bool(known == method)


def _make_property(walk: Any, obj: Any) -> Any:
    functions = obj.fget, obj.fset, obj.fdel
    copies = [walk.copy_of(function) for function in functions]
    if all(map(is_, copies, functions)):
        return walk.remember(obj, obj)
    return walk.remember(obj, type(obj)(*copies, obj.__doc__))


def _make_cached_property(walk: Any, obj: Any) -> Any:
    function = walk.copy_of(obj.func)
    if function is obj.func:
        return walk.remember(obj, obj)
    new = walk.remember(obj, type(obj)(function))
    new.attrname = obj.attrname
    return new


def _make_ufunc(walk: Any, obj: Any) -> Any:
    """Copies what `np.frompyfunc` made of a function; others are written in C."""
    inner = _functions.behind_ufunc(obj)
    copies = [walk.copy_of(function) for function in inner]
    if all(map(is_, copies, inner)):
        return walk.remember(obj, obj)
    identity = {} if obj.identity is None else {"identity": obj.identity}
    make: Any = np.frompyfunc
    return walk.remember(obj, make(*copies, obj.nin, obj.nout, **identity))


def _make_super(walk: Any, obj: Any) -> Any:
    """Returns what finds the methods of base classes for the copy."""
    owner = walk.copy_of(obj.__self__)
    if owner is obj.__self__:
        return walk.remember(obj, obj)
    return walk.remember(obj, super(obj.__thisclass__, owner))


def _make_wrapper(walk: Any, obj: Any) -> Any:
    """Puts the same around the copy of a function; what was cached is not its."""
    inner: Any = obj.__wrapped__
    new = walk.copy_of(inner)
    caches = isinstance(obj, _functions.CachedFunction)
    is_code = not caches or _functions.is_importable(obj)
    # Otherwise its name will be read.
    if (new is inner and is_code) or not walk.complete(obj, inner):
        return walk.memo.setdefault(address(obj), obj)
    if caches:
        made = functools.lru_cache(**obj.cache_parameters())(new)
    else:
        made = type(obj)(new)
    walk.fill_later(fill_dict, obj, made)
    return walk.remember(obj, made)


def _make_builtin_method(walk: Any, obj: Any) -> Any:
    owner = getattr(obj, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType | type):
        return walk.remember(obj, obj)
    if _is_of_a_module(walk, obj):
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


MAKERS: dict[type, Maker] = {
    types.FunctionType: _make_function,
    types.CellType: _make_cell,
    types.MethodType: _make_method,
    types.BuiltinMethodType: _make_builtin_method,
    types.MethodWrapperType: _make_builtin_method,
    functools.partial: _make_partial,
    super: _make_super,
    property: _make_property,
    functools.cached_property: _make_cached_property,
    np.ufunc: _make_ufunc,
    **dict.fromkeys(_functions.WRAPPERS, _make_wrapper),
}
