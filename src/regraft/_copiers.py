"""`register_copier`: teaching regraft how to copy a class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from . import _keras
from ._errors import RegraftError, UsageTypeError, explain
from ._makers import set_copier


def register_copier(kind: type, function: Callable[..., Any]) -> None:
    """Says how instances of a class are copied.

    Use it for a class that regraft refuses to copy because it holds something
    that Python cannot copy (a file, a lock, a handle of a C library), or that
    should be copied in a way of its own. It holds for subclasses too, and goes
    before everything that regraft knows by itself.

    Args:
        kind: The class.
        function: Called as `function(obj)` or, if it takes a second argument, or
            one called `copy`, as `function(obj, copy)`; returns the copy.
            `copy(part)` gives what stands in the new model for a part of the old
            one: a layer, a variable or anything else that the object holds. It is
            complete, but for what holds the object in turn, and for the values of
            variables, which come when all objects are there.

    Example:
    >>> import regraft
    >>> class Counter:
    ...     def __init__(self, start=0):
    ...         self.numbers = iter(range(start, 1000))
    >>> regraft.register_copier(Counter, lambda counter: Counter())
    """
    if not isinstance(kind, type):
        raise UsageTypeError(
            explain(
                "`register_copier` needs a class to register a copier for.",
                where="argument `kind`",
                expected="a class",
                received=repr(kind),
                fix="pass the class itself: `register_copier(MyClass, function)`",
            )
        )
    if not callable(function):
        raise UsageTypeError(
            explain(
                "`register_copier` needs a function that makes the copy.",
                where="argument `function`",
                expected="a callable taking the object, and perhaps `copy`",
                received=repr(function),
                fix="pass a function such as `lambda obj: MyClass(obj.size)`",
            )
        )
    call = _caller(function)

    def maker(walk: Any, obj: Any) -> Any:
        def copy(part: Any) -> Any:
            new = walk.copy_of(part)
            walk.complete(obj, part)
            return new

        try:
            new = call(obj, copy)
        except (RegraftError, RecursionError):  # It is told with a path of its own.
            raise
        except Exception as error:
            if not getattr(error, "__notes__", ()):  # Not by each copier around.
                error.add_note(f"regraft copied {walk.path_of(obj)}")
            raise
        if walk.known(obj) is not None:  # A part that holds it asked for it.
            return walk.known(obj)
        if isinstance(obj, _keras.Layer) and isinstance(new, _keras.Layer):
            walk.pair_layers(obj, new)
        return walk.remember(obj, new)

    set_copier(kind, maker)


def _caller(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Returns a function of an object and `copy` that calls a copier as it wants."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # Some C functions do not tell.
        parameters = []
    of_place = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    by_place = [p for p in parameters if p.kind in of_place]
    if any(p.default is p.empty or p.name == "copy" for p in by_place[1:2]):
        return function
    by_name = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    if any(p.default is p.empty and p.name == "copy" for p in by_name):
        return lambda obj, copy: function(obj, copy=copy)
    return lambda obj, copy: function(obj)
