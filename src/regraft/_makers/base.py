"""What several makers need: the kinds of function they are, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._core import Maker as Maker
from .._errors import CopyError, explain, shortened

# Makes a maker to the measure of a class.
Tailor = Callable[[type], Maker]


def always(maker: Maker) -> Tailor:
    """Returns a tailor who has one maker for all classes."""
    return lambda kind: maker


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
    return shortened(text, 120)
