"""What several makers need: the kind of function they are, simple parts, refusals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from .._atoms import ATOMS, NAMES
from .._errors import CopyError, explain, shortened
from .._identity import may_be_id, may_hold_ids

Maker = Callable[[Any, Any], Any]
# Makes a maker to the measure of a class.
Tailor = Callable[[type], Maker]


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


def are_atoms(parts: Collection[Any]) -> bool:
    """Tells whether both models can share all parts, so nothing need be put off."""
    kinds = set(map(type, parts))
    return kinds <= ATOMS and not (int in kinds and may_hold_ids(parts))


def are_names(parts: Iterable[Any]) -> bool:
    """Tells whether all parts are plain strings, the same in both models."""
    return NAMES.issuperset(map(type, parts))


def needs_hash(key: Any) -> bool:
    return type(key) not in ATOMS or may_be_id(key)


def is_simple(content: dict[Any, Any]) -> bool:
    """Tells whether a dict holds nothing but atoms, and tuples of them."""
    values, keys = dict.values(content), dict.keys(content)
    kinds = set(map(type, values))
    if not kinds <= _SIMPLE or (int in kinds and may_hold_ids(values)):
        return False
    if tuple in kinds and not all(are_atoms(x) for x in values if type(x) is tuple):
        return False
    return are_names(keys) or not any(map(needs_hash, keys))


_SIMPLE = ATOMS | {tuple}
