"""The parts that Keras gives every layer: its tracker and its wrapped methods."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from keras.src.layers.layer import Layer

from .._atoms import ATOMS
from .._identity import address, new_id
from .globals import quiet_globals


def tracker_in(state: dict[str, Any]) -> Any:
    """Returns the tracker among a layer's attributes, if it has one."""
    return state.get("_tracker")


def copy_tracker(
    tracker: Any, new: Any, memo: dict[int, Any], copy_of: Callable[[Any], Any]
) -> bool:
    """Gives a tracker the copies of the lists in which it collects things.

    Args:
        tracker: The tracker.
        new: Its copy, an empty shell.
        memo: The copies of what the walk has met, by identity.
        copy_of: Returns the copy of anything.

    Returns:
        Whether the copy is complete. If not, `index_tracker` has to be called
        when the walk has seen everything.
    """
    ids, config = tracker.stored_ids, tracker.config.copy()
    is_complete = len(ids) == len(config)
    new_ids: dict[str, set[int]] = {}
    for name, (test, store) in config.items():
        key = address(store)
        if type(store) is not list or name not in ids or key in memo:
            twin = copy_of(store)  # Perhaps still without its items.
            is_complete = False
        elif store:
            twin = memo[key] = []
            twin += map(copy_of, store)
            new_ids[name] = set(map(id, twin))
            is_complete = is_complete and ids[name] == set(map(id, store))
        else:
            twin = memo[key] = []
            new_ids[name] = set()
            is_complete = is_complete and not ids[name]
        config[name] = (test if test.__closure__ is None else copy_of(test), twin)
    new.__dict__ = {
        **tracker.__dict__,
        "config": config,
        "stored_ids": new_ids,
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


def rebind_wrappers(
    layer: Any, new: Any, state: dict[str, Any], memo: dict[int, Any]
) -> None:
    """Makes the wrappers that `Layer.__new__` put on a layer, for its copy.

    They are closures over the layer and its method. The walk could copy them as
    it copies any function; there are two of them on every layer, so they are
    worth a quicker way.

    Args:
        layer: The layer.
        new: Its copy.
        state: The layer's attributes.
        memo: The copies of what the walk has met, by identity.
    """
    cells: dict[int, CellType] = {}  # Both close over the same one.
    for name, code in _WRAPPERS.items():
        wrapper: Any = state.get(name)
        if type(wrapper) is not FunctionType or wrapper.__code__ is not code:
            continue
        attributes = wrapper.__dict__
        method: Any = attributes.get("__wrapped__")
        if type(method) is not MethodType or method.__self__ is not layer:
            continue
        bound = MethodType(method.__func__, new)
        if len(attributes) == 1:
            attributes = {"__wrapped__": bound}
        else:
            attributes = {**attributes, "__wrapped__": None}
            if not ATOMS.issuperset(map(type, attributes.values())):
                continue
            attributes["__wrapped__"] = bound
        cell = (wrapper.__closure__ or ())[0]
        owner = cells.setdefault(address(cell), CellType(new))
        memo[address(wrapper)] = made = FunctionType(
            code,
            wrapper.__globals__,
            wrapper.__name__,
            wrapper.__defaults__,
            (owner, CellType(bound)),
        )
        if wrapper.__annotations__:
            made.__annotations__ = dict(wrapper.__annotations__)
        if wrapper.__kwdefaults__:
            made.__kwdefaults__ = wrapper.__kwdefaults__
        made.__qualname__ = wrapper.__qualname__
        made.__module__ = wrapper.__module__
        made.__doc__ = wrapper.__doc__
        made.__dict__ = attributes


with quiet_globals():
    _WRAPPERS = _wrapper_codes()
