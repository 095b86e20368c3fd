"""`register_copier`: teaching regraft how to copy a class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ._errors import UsageTypeError, explain
from ._makers import set_copier


def register_copier(kind: type, function: Callable[..., Any]) -> None:
    """Says how instances of a class are copied.

    Use it for a class that regraft refuses to copy because it holds something
    that Python cannot copy (a file, a lock, a handle of a C library), or that
    should be copied in a way of its own. It holds for subclasses too, and goes
    before everything that regraft knows by itself.

    Args:
        kind: The class.
        function: Called as `function(obj)` or, if it takes two arguments, as
            `function(obj, copy)`; returns the copy. `copy(part)` gives what
            stands in the new model for a part of the old one: a layer, a
            variable or anything else that the object holds.

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
    takes_copy = _positional_count(function) >= 2

    def maker(walk: Any, obj: Any) -> Any:
        new = function(obj, walk.copy_of) if takes_copy else function(obj)
        return walk.remember(obj, new)

    set_copier(kind, maker)


def _positional_count(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # Some C functions do not tell.
        return 1
    required = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return sum(p.kind in required and p.default is p.empty for p in parameters)
