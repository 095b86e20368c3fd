"""Checks of the arguments that `clone` is called with."""

from __future__ import annotations

from typing import Any

from . import _keras
from ._errors import UsageError, UsageTypeError, did_you_mean, explain
from ._placement import Layouts, find_device

_WEIGHTS = ("copy", "share", "fresh")
_COMPILED = ("copy", "fresh", "drop")


def check(
    model: Any, weights: Any, seed: Any, compiled: Any, name: Any, prefix: Any
) -> None:
    """Raises an error if an argument of `clone` is wrong."""
    if not isinstance(model, _keras.Layer | _keras.Function):
        raise UsageTypeError(
            explain(
                "Only models, layers and Functions can be cloned.",
                where="argument `model`",
                expected="a `keras.Model`, `keras.Layer` or `keras.Function`",
                received=f"{model!r} (of type {type(model).__name__})",
                fix="pass the model itself, not its class, its path or its weights",
            )
        )
    _check_choice("weights", weights, _WEIGHTS)
    _check_choice("compiled", compiled, (None, *_COMPILED))
    if seed is not None and (isinstance(seed, bool) or not _is_int(seed)):
        raise UsageTypeError(
            explain(
                "The seed must be a whole number.",
                where="argument `seed`",
                expected="an int, or None",
                received=f"{seed!r} (of type {type(seed).__name__})",
                fix="pass for example `seed=7`",
            )
        )
    for argument, value in (("name", name), ("prefix", prefix)):
        if value is not None:
            check_name(argument, value)
    if _keras.in_stateless_scope():
        raise UsageError(
            explain(
                "A model cannot be cloned while it is being traced.",
                where=model.name,
                expected="a call outside of jitted functions and stateless scopes",
                received="a call inside a stateless scope, where variables have no "
                "values of their own",
                fix="clone the model before, or after, the traced function runs",
            )
        )


def check_name(argument: str, value: Any) -> None:
    """Refuses what cannot be a name, or the beginning of one."""
    is_text = isinstance(value, str) and "/" not in value
    if is_text and (value or argument != "name"):
        return
    raise UsageTypeError(
        explain(
            f"`{argument}` must be a string without slashes.",
            where=f"argument `{argument}`",
            expected="a str without '/', which separates parts of a path",
            received=f"{value!r} (of type {type(value).__name__})",
            fix=f"pass for example `{argument}='copy_'`",
        )
    )


def check_place(
    weights: str, device: Any, distribution: Any
) -> tuple[Any, Layouts | None]:
    """Returns the device, and the layouts over a mesh, that were asked for."""
    if device is None and distribution is None:
        return None, None
    if device is not None and distribution is not None:
        raise UsageError(
            explain(
                "A copy lies on one device or on a mesh, not on both.",
                where="arguments `device` and `distribution`",
                expected="one of them",
                received=f"device={device!r} and distribution={distribution!r}",
                fix="leave one of them out",
            )
        )
    if weights == "share":
        raise UsageError(
            explain(
                "Shared weights cannot lie in two places.",
                where="argument `weights`",
                expected='"copy" or "fresh", for a copy that lies elsewhere',
                received='"share"',
                fix="leave out `device=` and `distribution=`, or copy the weights",
            )
        )
    if device is not None:
        return find_device(device), None
    return None, Layouts(distribution)


def _check_choice(argument: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value in choices:
        return
    hint = did_you_mean(value, [c for c in choices if isinstance(c, str)])
    raise UsageError(
        explain(
            f"Unknown value for `{argument}`.",
            where=f"argument `{argument}`",
            expected=" or ".join(repr(choice) for choice in choices),
            received=repr(value),
            fix=f"choose one of these.{hint}",
        )
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) or hasattr(value, "__index__")
