"""Makers of the parts of a Keras model."""

from __future__ import annotations

from typing import Any

from .. import _keras
from .base import Maker, is_simple
from .instances import fill_slots, make_instance


def _make_variable(walk: Any, obj: Any) -> Any:
    stand_in = walk.rules.variable(obj)
    if stand_in is not None:
        return walk.remember(obj, stand_in)
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    walk.variables.append((obj, new))
    state = _keras.variable_state(obj)
    if is_simple(state.items()):
        object.__setattr__(new, "__dict__", state)
    else:
        walk.fill_later(_fill_variable, obj, new)
    return new


def _fill_variable(walk: Any, obj: Any, new: Any) -> None:
    walk.copy_items(_keras.variable_state(obj), vars(new))


def _make_tensor(walk: Any, obj: Any) -> Any:
    """Copies a symbolic tensor and, unless it was cut off, what produced it."""
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    walk.fill_later(_fill_tensor, obj, new)
    return new


def _fill_tensor(walk: Any, obj: Any, new: Any) -> None:
    walk.copy_items(_keras.tensor_state(obj), vars(new))
    if _keras.history(obj) is not None:
        walk.note_tensor(obj, new)
        if not walk.is_cut(obj):
            walk.copy_of(_keras.producer(obj))


def _make_operation(walk: Any, obj: Any) -> Any:
    new = walk.remember(obj, object.__new__(type(obj)))
    walk.operations.append((obj, new))
    walk.fill_later(_fill_operation, obj, new)
    return new


def _fill_operation(walk: Any, obj: Any, new: Any) -> None:
    if isinstance(obj, _keras.Trainer):
        _keras.jax_sync(obj)
    attributes = vars(obj)
    shared = walk.memo.get(id(attributes))
    if shared is not None and shared is not vars(new):
        # Two objects, one dict: so have their copies.
        object.__setattr__(new, "__dict__", shared)
        return
    state = attributes.copy()
    _make_standard_parts(walk, state)
    # Node lists come before other attributes, which may hold the same lists:
    # following those would drag in the calls of other models.
    for name in _keras.NODE_LISTS:
        if name in state:
            _hollow_list(walk, state[name], name)
    for name in _keras.LOSS_LISTS:
        losses = state.get(name)
        if losses and not all(walk.backend.is_concrete(loss) for loss in losses):
            _hollow_list(walk, losses, name)
    if _keras.is_graph(obj):
        walk.note_graph(obj, new)
        for tensor in _keras.foreign_inputs(obj):
            walk.cut(tensor)
        state.pop("_nodes", None)
    if isinstance(obj, _keras.Trainer):
        for name, value in _keras.RUNTIME_STATE.items():
            if name in state:
                state[name] = value
    walk.rules.attributes(obj, state)
    _keras.rebind_wrappers(obj, new, state, walk.memo)
    walk.translate(state)
    if shared is None:
        walk.memo[id(attributes)] = state
        object.__setattr__(new, "__dict__", state)
    else:  # Filled once more, now that the targets of weak references are known.
        shared.update(state)
    fill_slots(walk, obj, new)


def _make_standard_parts(walk: Any, state: dict[str, Any]) -> None:
    for part, shell in _keras.copy_standard_parts(state, walk.memo):
        if type(part) is list:
            shell.extend(map(walk.copy_of, part))
        else:
            _keras.copy_tracker(part, shell, walk.copy_of)
            walk.note_tracker(part, shell)


def _hollow_list(walk: Any, nodes: Any, name: str) -> None:
    """Makes a list of the same class, for what will turn out to be the copy's."""
    memo = walk.memo
    if id(nodes) in memo:
        return
    kind = type(nodes)
    new = memo[id(nodes)] = list.__new__(kind)
    inbound = name == _keras.NODE_LISTS[0]
    walk.note_node_list(nodes, new, inbound=inbound)
    if kind is list:
        return
    target = new.__dict__
    for attribute, value in nodes.__dict__.items():
        if id(value) in memo:
            target[attribute] = memo[id(value)]
        elif type(value) is list:  # TensorFlow's wrapper keeps the items here.
            target[attribute] = inner = walk.remember(value, [])
            walk.note_node_list(value, inner, inbound=inbound)
        else:
            target[attribute] = walk.copy_of(value)


def _make_node(walk: Any, obj: Any) -> Any:
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    walk.fill_later(_fill_node, obj, new)
    return new


def _fill_node(walk: Any, obj: Any, new: Any) -> None:
    _keras.copy_node(obj, new, walk.copy_of)


def _make_tracker(walk: Any, obj: Any) -> Any:
    new = walk.memo[id(obj)] = object.__new__(type(obj))
    walk.fill_later(_fill_tracker, obj, new)
    walk.note_tracker(obj, new)
    return new


def _fill_tracker(walk: Any, obj: Any, new: Any) -> None:
    _keras.copy_tracker(obj, new, walk.copy_of)


def _noting(collection: str) -> Maker:
    """Returns a maker of instances that also lists the pair on the walk."""

    def make(walk: Any, obj: Any) -> Any:
        new = make_instance(walk, obj)
        getattr(walk, collection).append((obj, new))
        return new

    return make


MAKERS: dict[type, Maker] = {
    _keras.Variable: _make_variable,
    _keras.KerasTensor: _make_tensor,
    _keras.Operation: _make_operation,
    _keras.BaseOptimizer: _noting("optimizers"),
    _keras.Metric: _noting("metrics"),
    _keras.SeedGenerator: _noting("seed_generators"),
    _keras.Initializer: _noting("initializers"),
    _keras.Node: _make_node,
    _keras.Tracker: _make_tracker,
    _keras.KerasSaveable: make_instance,
}
