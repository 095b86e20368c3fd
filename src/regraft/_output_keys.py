"""Which output of a layer takes the place of which, where outputs have keys."""

from __future__ import annotations

import warnings
from typing import Any

import keras

from . import _keras, _refit
from ._errors import UsageError, explain
from ._ghosts import on_same_variables


def in_order(
    old: Any, call: tuple[Any, dict[str, Any]], new: Any, outputs: Any, where: str
) -> list[Any]:
    """Returns the outputs of a new layer in the order of the old one's.

    A graph keeps the tensors that a layer returned, not the dict that they were in. So
    the old layer is asked again.

    Args:
        old: The layer of the old model.
        call: What it was called with.
        new: The layer in its place.
        outputs: What this returned: as many tensors as the old layer.
        where: The layer, for messages.
    """
    flat = keras.tree.flatten(outputs)
    if len(flat) < 2 or not isinstance(old, _keras.Layer):
        return flat
    wanted = _places(_outputs_again(old, call))
    found = dict(zip(_places(outputs), flat, strict=True))
    if not any(isinstance(key, str) for place in [*wanted, *found] for key in place):
        return flat
    if not wanted or wanted == list(found):
        return flat
    if set(wanted) == set(found):
        return [found[place] for place in wanted]
    raise UsageError(
        explain(
            "A layer was called again and returned outputs with other keys than the "
            "original.",
            where=where,
            expected=_named(wanted),
            received=f"{_named(list(found))} from {new!r}",
            fix="return tensors in the same structure, with the same keys",
        )
    )


def _outputs_again(layer: Any, call: tuple[Any, dict[str, Any]]) -> Any:
    """Calls a copy of a layer; returns an empty list if that fails."""
    walk = on_same_variables(layer)
    args, kwargs = _refit.detach(*call)
    try:
        with _keras.quiet_globals(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return walk.run()(*args, **kwargs)
    except Exception:  # Whatever a user's layer raises: it says nothing.
        return []


def _places(struct: Any) -> list[tuple[Any, ...]]:
    return [tuple(path) for path, _ in keras.tree.flatten_with_path(struct)]


def _named(places: list[tuple[Any, ...]]) -> str:
    return "outputs " + ", ".join(".".join(map(str, place)) for place in places)
