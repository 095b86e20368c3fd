"""The parts that Keras gives every layer: its tracker and its wrapped methods."""

from __future__ import annotations

from types import CodeType
from typing import Any

from keras.src.layers.layer import Layer

from .._core import copy_stores
from .._identity import new_id
from .globals import quiet_globals

# The attribute in which a layer has its tracker.
TRACKER = "_tracker"


def copy_tracker(tracker: Any, new: Any, walk: Any) -> bool:
    """Gives a tracker the copies of the lists in which it collects things.

    Args:
        tracker: The tracker.
        new: Its copy, an empty shell.
        walk: The walk.

    Returns:
        Whether the copy is complete. If not, `index_tracker` has to be called
        when the walk has seen everything.
    """
    config, ids, is_complete = copy_stores(walk, tracker.config, tracker.stored_ids)
    new.__dict__ = {
        **tracker.__dict__,
        "config": config,
        "stored_ids": ids,
        "exclusions": {k: list(v) for k, v in tracker.exclusions.items()},
    }
    return is_complete


def index_tracker(tracker: Any, new: Any, memo: dict[int, Any]) -> None:
    """Writes the identities of all that a tracker has collected."""
    vars(new)["stored_ids"] = {
        name: {new_id(key, memo) for key in keys}
        for name, keys in tracker.stored_ids.items()
    }


def _wrapper_codes() -> dict[str, CodeType]:
    """Returns the code of the functions that `Layer.__new__` puts on each layer."""
    layer = Layer()
    codes = {name: vars(layer)[name].__code__ for name in ("build", "quantize")}
    return {
        name: code
        for name, code in codes.items()
        if code.co_freevars == ("obj", f"original_{name}_method")
    }


# What `Layer.__new__` puts around methods of a layer; all close over the layer.
with quiet_globals():
    WRAPPERS = _wrapper_codes()
