"""Python functions: which of them hold state, and which read it from globals."""

from __future__ import annotations

import dis
import functools
import gc
import sys
import types
from collections.abc import Callable, Iterator, Set
from functools import lru_cache
from typing import Any, cast

import numpy as np

from ._identity import address

# What Python puts around a function. Those with a cache have no name of their own.
CachedFunction: Any = type(functools.lru_cache(len))
WRAPPERS: Any = (CachedFunction, staticmethod, classmethod)


def captured(function: types.FunctionType) -> Iterator[Any]:
    """Yields all that a function carries with it besides its code."""
    return (value for _, value in captured_by_name(function))


def annotations_of(function: types.FunctionType) -> dict[str, str]:
    """Returns what a function says of its arguments, in words."""
    try:
        return {name: repr(note) for name, note in function.__annotations__.items()}
    except NameError:  # From Python 3.14 on they are looked up when they are asked for.
        return {}


def captured_by_name(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields all that a function carries with it, and what its code calls that."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # An empty cell: the name is bound later, or never.
            continue
    names = code.co_varnames[: code.co_argcount][::-1]
    for i, default in enumerate(reversed(function.__defaults__ or ())):
        yield names[i] if i < len(names) else "?", default
    yield from (function.__kwdefaults__ or {}).items()
    yield from function.__dict__.items()


def is_shared_by_class(
    method: types.MethodType, is_model_state: Callable[[Any], bool]
) -> bool:
    """Tells whether the class of a method's object defines the method.

    Then its function is found there by everybody, and stays what it is. One that
    carries a part of a model is made anew all the same, where that can be done.

    Args:
        method: The method.
        is_model_state: Asked of a captured object: is it part of a model?
    """
    owner, function = method.__self__, cast(Any, method.__func__)
    is_written = isinstance(function, types.FunctionType)
    if is_written and any(map(is_model_state, captured(function))):
        return False
    for base in (owner if isinstance(owner, type) else type(owner)).__mro__:
        found: Any = vars(base).get(getattr(function, "__name__", ""))
        if function is found or function is getattr(found, "__func__", None):
            return True
    return False


def is_importable(function: Any) -> bool:
    """Tells whether the function is what its module and name say it is.

    Such a function is code, like a class: others find it by its name, so a copy
    of it would be a stranger to them.
    """
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


@lru_cache(maxsize=4096)
def rebound_names(code: types.CodeType) -> frozenset[str]:
    """Returns the `nonlocal` names that the code assigns to, i.e. keeps state in."""
    writes = {"STORE_DEREF", "DELETE_DEREF"}
    names = {i.argval for i in dis.get_instructions(code) if i.opname in writes}
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return frozenset(names.union(*map(rebound_names, inner)) & {*code.co_freevars})


def rebound_cells(function: types.FunctionType) -> list[Any]:
    """Returns the cells of a function to which its code assigns."""
    names = rebound_names(function.__code__)
    if not names:
        return []
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [cell for name, cell in cells if name in names]


def behind_ufunc(obj: np.ufunc) -> list[Any]:
    """Returns the functions of which `np.frompyfunc` made one; others are C."""
    return [part for part in gc.get_referents(obj) if callable(part)]


@lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Returns the names that the code, and code inside it, reads as globals."""
    # `co_names` would have the names of attributes as well.
    reads = {"LOAD_GLOBAL", "LOAD_NAME"}
    found = (i.argval for i in dis.get_instructions(code) if i.opname in reads)
    names = dict.fromkeys(found)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names.update(dict.fromkeys(global_names(const)))
    return tuple(names)


def globals_of_exec(function: types.FunctionType) -> dict[str, Any] | None:
    """Returns the globals that a function reads; None if a module holds them.

    Libraries that write code at run time give each function globals of its own.
    """
    around = function.__globals__
    module = sys.modules.get(str(around.get("__name__")))
    if module is not None and vars(module) is around:
        return None
    names = global_names(function.__code__)
    return {name: around[name] for name in names if name in around}


def holds_state(
    function: types.FunctionType,
    *,
    is_shared: Callable[[Any], bool],
    is_model_state: Callable[[Any], bool],
    rebound: Set[int],
) -> bool:
    """Tells whether a function must be made anew for a copy to be independent.

    Args:
        function: The function.
        is_shared: Asked of a captured object: do both models use it as it is?
        is_model_state: Asked of a captured object: is it part of a model?
        rebound: The addresses of cells to which other functions assign.
    """
    if any(is_model_state(part) for part in captured(function)):
        return True
    importable = is_importable(function)
    if not importable and _keeps_state(function, rebound):
        return True
    seen = {address(function)}
    stack = list(captured(function))
    while stack:
        part = stack.pop()
        if address(part) in seen:
            continue
        seen.add(address(part))
        if is_model_state(part):
            return True
        if isinstance(part, types.FunctionType):
            if not is_importable(part) and _keeps_state(part, rebound):
                return True
            stack.extend(captured(part))
        elif isinstance(part, types.MethodType):
            stack += [part.__func__, part.__self__]
        elif isinstance(part, WRAPPERS):
            if isinstance(part, CachedFunction) and not is_importable(part):
                return True
            stack.append(part.__wrapped__)
        elif isinstance(part, functools.partial):
            stack += [part.func, *part.args, *part.keywords.values()]
        elif isinstance(part, tuple | frozenset):
            stack.extend(part)
        elif importable:
            # A module-level function is shared like any other code, with its
            # caches; only a part of a model inside them makes a difference.
            if isinstance(part, dict):
                stack.extend(part.values())
            elif isinstance(part, list | set):
                stack.extend(part)
        elif not is_shared(part):
            return True
    return False


def _keeps_state(function: types.FunctionType, rebound: Set[int]) -> bool:
    """Tells whether a function keeps something between calls, perhaps on itself."""
    # What decorators note of the function inside is no state, nor what a library puts
    # on functions of its modules.
    own = function.__dict__.keys() - {"__wrapped__"}
    if rebound_names(function.__code__) or (
        own and "<locals>" in function.__qualname__
    ):
        return True
    return bool(rebound) and any(
        address(cell) in rebound for cell in function.__closure__ or ()
    )


def hollow_copy(
    function: types.FunctionType, cell_for: Callable[[Any], Any]
) -> types.FunctionType:
    """Returns a function with the same code over other cells.

    Args:
        function: The function to copy.
        cell_for: Returns the cell that takes a cell's place.
    """
    cells = tuple(cell_for(cell) for cell in function.__closure__ or ())
    new = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        None,
        cells if function.__closure__ is not None else None,
    )
    new.__qualname__ = function.__qualname__
    new.__module__ = function.__module__
    new.__doc__ = function.__doc__
    if function.__annotations__:
        new.__annotations__ = dict(function.__annotations__)
    return new
