"""The parts that Keras gives every layer: its tracker and its wrapped methods."""

from __future__ import annotations

from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from keras.src.layers.layer import Layer
from keras.src.utils.tracking import TrackedDict, TrackedList, TrackedSet, Tracker

from .._atoms import NAMES
from .globals import quiet_globals


def copy_tracker(tracker: Any, new: Any, copy_of: Any) -> None:
    """Gives a tracker the copies of the lists in which it collects things."""
    new.__dict__ = state = vars(tracker).copy()
    state["config"] = {
        name: (test if test.__closure__ is None else copy_of(test), copy_of(store))
        for name, (test, store) in tracker.config.items()
    }
    state["exclusions"] = {k: list(v) for k, v in tracker.exclusions.items()}


# The lists in which a layer's tracker collects things, by attribute.
_STORES = (
    "_trainable_variables",
    "_non_trainable_variables",
    "_layers",
    "_metrics",
    "_seed_generators",
)


# Containers of every layer that hold nothing but atoms, wrapped by its tracker.
_TRACKED_ATOMS = (
    "_losses",
    "_loss_ids",
    "_losses_override",
    "call_signature_parameters",
    "_call_context_args",
    "_call_has_context_arg",
)


def copy_standard_parts(state: dict[str, Any], memo: dict[int, Any]) -> Any:
    """Makes the copies of what every layer has and nobody else holds.

    This is the quick way for about half of the objects of a model. What does not
    look exactly as Keras makes it is left for the usual way.

    Args:
        state: The layer's attributes.
        memo: The copies of what the walk has met, by identity.

    Returns:
        The pairs (original, copy) that are still to be filled: the tracker, and
        the lists of variables, layers, metrics and seed generators.
    """
    tracker = state.get("_tracker")
    if type(tracker) is not Tracker or id(tracker) in memo:
        return ()
    new_tracker = memo[id(tracker)] = object.__new__(Tracker)
    hollow = [(tracker, new_tracker)]
    for name in _STORES:
        store = state.get(name)
        if type(store) is list and id(store) not in memo:
            shell: list[Any] = []
            memo[id(store)] = shell
            if store:
                hollow.append((store, shell))
    for name in _TRACKED_ATOMS:
        container: Any = state.get(name)
        kind: Any = type(container)
        if kind not in _TRACKED or len(container.__dict__) != 1:
            continue
        new = kind.__new__(kind)
        if container:
            if not NAMES.issuperset(map(type, container)):
                continue
            if kind is TrackedDict and not _FLAGS.issuperset(
                map(type, container.values())
            ):
                continue
            _TRACKED[kind](new, container)
        memo[id(container)] = new
        new.__dict__["tracker"] = new_tracker
    return hollow


_FLAGS = frozenset({bool})


_TRACKED: dict[type, Any] = {
    TrackedList: list.extend,
    TrackedSet: set.update,
    TrackedDict: dict.update,
}


def index_tracker(tracker: Any, new: Any, memo: dict[int, Any]) -> None:
    """Writes the identities of all that a tracker has collected."""
    vars(new)["stored_ids"] = {
        name: {id(memo[key]) if key in memo else key for key in keys}
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
    for name, code in _WRAPPERS.items():
        wrapper: Any = state.get(name)
        if type(wrapper) is not FunctionType or wrapper.__code__ is not code:
            continue
        attributes = wrapper.__dict__
        method: Any = attributes.get("__wrapped__")
        if type(method) is not MethodType or method.__self__ is not layer:
            continue
        if len(attributes) != 1:
            continue
        bound = MethodType(method.__func__, new)
        cells = CellType(new), CellType(bound)
        memo[id(wrapper)] = made = FunctionType(
            code, wrapper.__globals__, wrapper.__name__, wrapper.__defaults__, cells
        )
        made.__kwdefaults__ = wrapper.__kwdefaults__
        made.__qualname__ = wrapper.__qualname__
        made.__module__ = wrapper.__module__
        made.__doc__ = wrapper.__doc__
        made.__dict__["__wrapped__"] = bound


with quiet_globals():
    _WRAPPERS = _wrapper_codes()
