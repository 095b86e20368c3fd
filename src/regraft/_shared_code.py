"""Code that both models run, and the parts of the original that it reads.

A function on a layer is rebuilt over the copies of what it closes over. Globals, and
classes with all that is in them, belong to everybody: they stay as they are.
"""

from __future__ import annotations

import functools
import itertools
import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import _functions, _keras
from ._atoms import ATOMS
from ._errors import GlobalReferenceWarning, RegraftError, explain
from ._identity import address, address_by_id
from ._parts import is_model_state, parts
from ._values import Difference
from ._walk import Walk

_LIBRARIES = {
    *("builtins", "collections", "weakref", "numpy", "regraft"),
    *("keras", "keras_hub", "jax", "jaxlib", "flax", "torch", "tensorflow"),
}


class _Reading(NamedTuple):
    """A name by which shared code knows an object, perhaps a part of a model."""

    reader: str
    name: str
    place: str
    value: Any


def warn_of_parts(walk: Walk) -> None:
    """Warns of parts that shared code goes on reading from the original."""
    for runner, reading, part in _parts_read(walk):
        if walk.known(part) is part:
            continue
        what = getattr(part, "path", None) or getattr(part, "name", "?")
        warnings.warn(
            explain(
                f"{reading.reader} reads `{reading.name}` ({type(part).__name__} "
                f"{what!r}) from {reading.place}, so the copy uses the original's.",
                where=_path_of(walk, runner),
                expected="a part of the model that is an attribute of a layer, or an "
                "argument of the function",
                received=f"`{reading.name}` from {reading.place}",
                fix="make it an attribute of a layer and read it from there, or pass "
                "it to the function",
            ),
            GlobalReferenceWarning,
            stacklevel=3,
        )


def read_by_both(left: Any, right: Any) -> Iterator[Difference]:
    """Yields parts with a state that two models, which run the same code, both use."""
    try:
        walk = Walk(left).survey()
        kinds = Walk(right).survey().kinds
    except RegraftError:  # It is told where it is copied to be called.
        return
    for runner, reading, part in _parts_read(walk):
        is_run = not isinstance(runner, type) or runner in kinds
        if is_run and _has_state(part):
            why = f"both models read `{reading.name}` from {reading.place}"
            yield Difference(_path_of(walk, runner), part, part, why)


def warn_of_registries(walk: Walk) -> None:
    """Warns of classes that keep something for objects of which there is a copy now."""
    found = (
        (base, kind, *x) for base, kind in _classes(walk) for x in _registries(base)
    )
    for base, kind, name, registry in found:
        if not any(_is_copied(walk, key) for key in list(registry)):
            continue
        warnings.warn(
            explain(
                f"The class `{base.__qualname__}` keeps something for an object of "
                f"this model in `{name}`, and nothing for its copy.",
                where=_path_of(walk, kind),
                expected="an attribute of the object itself",
                received=f"a {type(registry).__name__} by object, on the class",
                fix="keep it on the object, or give the copy an entry of its own",
            ),
            GlobalReferenceWarning,
            stacklevel=3,
        )


def _registries(kind: type) -> Iterator[tuple[str, Any]]:
    """Yields the dicts on a class, and those that its descriptors hold.

    A descriptor of a library makes for a copy what it has made for the original, when
    it is asked: `tf.function` keeps the functions of each object.
    """
    for name, member in vars(kind).items():
        is_descriptor = hasattr(type(member), "__get__") and hasattr(member, "__dict__")
        is_asked = is_descriptor and not _is_library(type(member))
        inside = vars(member).values() if is_asked else ()
        for found in (member, *inside):
            if isinstance(found, dict | weakref.WeakKeyDictionary | weakref.WeakSet):
                yield name, found


def _is_copied(walk: Walk, key: Any) -> bool:
    place = address_by_id(key) if type(key) is int else address(key)
    return walk.memo.get(place, key) is not key


def _readings(walk: Walk) -> Iterator[tuple[Any, _Reading]]:
    """Yields what shared code reads, each with the function or class that runs it."""
    seen: set[int] = set()
    for function in walk.functions:
        yield from ((function, reading) for reading in _of_globals(function, seen))
    for base, kind in _classes(walk):
        yield from ((kind, reading) for reading in _of_class(base, seen))


def _parts_read(walk: Walk) -> Iterator[tuple[Any, _Reading, Any]]:
    """Yields the parts of models among them."""
    for runner, reading in _readings(walk):
        part = _part_of_a_model(reading.value)
        if part is None:
            near = (x for x in _near(reading.value) if _is_copied(walk, x))
            part = next(near, None)
        if part is not None:
            yield runner, reading, part


def _classes(walk: Walk) -> Iterator[tuple[type, type]]:
    """Yields the user's classes, each with one of the model that inherits from it."""
    heirs = {base: kind for kind in walk.kinds for base in kind.__mro__}
    yield from ((base, kind) for base, kind in heirs.items() if not _is_library(base))


def _of_class(kind: type, seen: set[int]) -> Iterator[_Reading]:
    for name, value in vars(kind).items():
        yield _Reading(f"The class `{kind.__qualname__}`", name, "its body", value)
    for function in _functions_in(kind):
        yield from _of_globals(function, seen)
        yield from _of_closures(function)


def _of_globals(function: types.FunctionType, seen: set[int]) -> Iterator[_Reading]:
    """Yields the globals that a function reads, and functions that it calls by name."""
    stack = [function]
    while stack:
        function = stack.pop()
        if address(function) in seen or _is_library(function):
            continue
        seen.add(address(function))
        reader = f"The function `{function.__qualname__}`"
        for name in _functions.global_names(function.__code__):
            found = function.__globals__.get(name)
            if isinstance(found, types.FunctionType):
                stack.append(found)
            elif found is not None:
                yield _Reading(reader, name, "a module global", found)


def _of_closures(method: types.FunctionType) -> Iterator[_Reading]:
    """Yields what a method of a class carries with it, through its decorators."""
    reader = f"The function `{method.__qualname__}`"
    stack, seen = [method], set[types.FunctionType]()
    while stack:
        function = stack.pop()
        if function in seen or _is_library(function):
            continue
        seen.add(function)
        for name, value in _functions.captured_by_name(function):
            if isinstance(value, types.FunctionType):
                stack.append(value)
            is_closed_over = name in function.__code__.co_freevars
            place = "the function around its class" if is_closed_over else "a default"
            yield _Reading(reader, name, place, value)


def _functions_in(kind: type) -> Iterator[types.FunctionType]:
    """Yields the functions that a class defines, also behind its descriptors."""
    for name, member in vars(kind).items():
        if name in ("__new__", "__init__"):  # They are not called for a copy.
            continue
        inner: tuple[Any, ...] = (member,)
        if isinstance(member, property):
            inner = (member.fget, member.fset, member.fdel)
        elif isinstance(member, staticmethod | classmethod):
            inner = (member.__func__,)
        elif isinstance(member, functools.cached_property):
            inner = (member.func,)
        yield from (f for f in inner if isinstance(f, types.FunctionType))


def _part_of_a_model(value: Any) -> Any:
    """Returns a value that is a part of a model, or the first such in a container."""
    if is_model_state(value):
        return value
    items: Any = value.values() if type(value) is dict else value
    if type(value) in (list, tuple, dict, set):
        return next(filter(is_model_state, items), None)
    return None


def _has_state(part: Any) -> bool:
    kinds = (_keras.Variable, _keras.SeedGenerator)
    return isinstance(part, kinds) or bool(getattr(part, "variables", ()))


# A global like `settings.parts["encoder"][0]` is as far as people go; a global may also
# hold a whole data set.
_STEPS, _OBJECTS = 4, 500


def _near(value: Any) -> Iterator[Any]:
    """Yields parts of models that can be reached from a global, a few steps away."""
    seen: dict[int, Any] = {}  # Holds what was made on the fly.
    stack = [(value, 0)]
    while stack and len(seen) < _OBJECTS:
        found, steps = stack.pop()
        if address(found) in seen or type(found) in ATOMS - {type}:
            continue
        seen[address(found)] = found
        if is_model_state(found):
            yield found
        elif steps < _STEPS:
            inside = itertools.islice(_held_by(found), _OBJECTS)
            stack += [(part, steps + 1) for part in inside]


def _held_by(obj: Any) -> Iterator[Any]:
    if isinstance(obj, type):
        inside = () if _is_library(obj) else tuple(vars(obj).values())
        return (x for x in inside if not isinstance(x, types.FunctionType))
    known = (list, tuple, dict, set, types.MethodType)
    is_plain = type(obj) in known or not _is_library(type(obj))
    return (part for _, part in parts(obj)) if is_plain else iter(())


def _path_of(walk: Walk, runner: Any) -> str:
    """Returns the path of a function, or of an object of a class."""
    if not isinstance(runner, type):
        return walk.path_of(runner)
    found = next((old for old, _ in walk.operations if type(old) is runner), None)
    return runner.__qualname__ if found is None else walk.path_of(found)


def _is_library(code: Any) -> bool:
    return (code.__module__ or "").split(".")[0] in _LIBRARIES
