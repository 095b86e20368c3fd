"""Makers of the parts of a Keras model."""

from __future__ import annotations

from typing import Any

from .. import _keras
from .._core import empty_like, instance_maker
from .._identity import address
from .base import Maker, Tailor, always, refuse
from .instances import (
    fill_attributes,
    fill_slots,
    instance_tailor,
    is_open,
    make_instance,
)


def _fill_variable(walk: Any, obj: Any, new: Any) -> None:
    walk.copy_items(_keras.variable_state(obj), vars(new))


# They get their values at the end.
_make_variable = instance_maker(
    _fill_variable, noted_in="variables", without=_keras.VALUE
)


def _make_tensor(walk: Any, obj: Any) -> Any:
    """Copies a symbolic tensor and, unless it was cut off, what produced it."""
    new = walk.memo[address(obj)] = object.__new__(type(obj))
    walk.fill_later(_fill_tensor, obj, new)
    return new


def _fill_tensor(walk: Any, obj: Any, new: Any) -> None:
    state = _keras.tensor_state(obj)
    walk.translate(state)
    object.__setattr__(new, "__dict__", state)
    if _keras.history(obj) is not None:
        node = _keras.producer(obj)
        walk.wiring.note_tensor(obj, new, node)
        if not walk.wiring.is_cut(obj):
            walk.copy_of(node)


def _make_operation(walk: Any, obj: Any) -> Any:
    try:
        new = walk.remember(obj, object.__new__(type(obj)))
    except TypeError as error:  # It is also a list, or the like.
        raise refuse(walk, obj, str(error)) from error
    walk.operations.append((obj, new))
    walk.fill_later(_fill_operation, obj, new)
    return new


def _fill_operation(walk: Any, obj: Any, new: Any) -> None:
    memo = walk.memo
    is_trainer = isinstance(obj, _keras.Trainer)
    if is_trainer:
        _keras.jax_sync(obj)
    attributes = vars(obj)
    shared = memo.get(address(attributes))
    if shared is not None and shared is not vars(new):
        # Two objects, one dict: so have their copies.
        object.__setattr__(new, "__dict__", shared)
        return
    state = attributes.copy()
    walk.copy_of(_keras.tracker_in(state))  # What it tracks asks for it.
    # Node lists come before other attributes, which may hold the same lists:
    # following those would drag in the calls of other models.
    for name in _keras.NODE_LISTS:
        nodes = state.get(name)
        if nodes is not None and address(nodes) not in memo:
            _hollow_list(walk, nodes, name)
    for name in _keras.LOSS_LISTS:
        losses = state.get(name)
        is_new = losses and address(losses) not in memo
        if is_new and not all(map(walk.backend.is_concrete, losses)):
            _hollow_list(walk, losses, name)
    if _keras.is_graph(obj):
        walk.wiring.note_graph(obj, new)
        for tensor in _keras.foreign_inputs(obj):
            walk.wiring.cut(tensor)
        state.pop("_nodes", None)
        if walk.keep is None:
            for name in _keras.GRAPH_INDICES:
                _copy_index(walk, state.get(name))
    if is_trainer:
        _keras.drop_runtime_state(state)
        walk.rules.attributes(obj, state)
        walk.hold(list(state.values()))  # Some were made just now.
    _keras.rebind_wrappers(obj, new, state, walk)
    holds_ids = walk.translate(state)
    if shared is None:
        memo[address(attributes)] = state
        object.__setattr__(new, "__dict__", state)
    else:  # Filled once more, now that the targets of weak references are known.
        shared.update(state)
    if holds_ids:
        walk.with_ids.append(vars(new))
    fill_slots(walk, obj, new)


def _copy_index(walk: Any, index: Any) -> None:
    if address(index) not in walk.memo:
        new = _keras.copy_graph_index(index, walk.memo, walk.copy_of)
        if new is not None:
            walk.memo[address(index)] = new


def _hollow_list(walk: Any, nodes: Any, name: str) -> None:
    """Makes a list of the same class, for what will turn out to be the copy's."""
    new = empty_like(walk, nodes)
    is_done = new is not None
    if not is_done:
        new = walk.remember(nodes, list.__new__(type(nodes)))
    inbound = name == _keras.NODE_LISTS[0]
    walk.wiring.note_list(nodes, new, inbound=inbound)
    for attribute, value in () if is_done else vars(nodes).items():
        if type(value) is list and walk.known(value) is None:
            # TensorFlow's wrapper keeps the items here.
            twin = walk.remember(value, [])
            walk.wiring.note_list(value, twin, inbound=inbound)
        else:
            twin = walk.copy_of(value)
        object.__setattr__(new, attribute, twin)


def _make_node(walk: Any, obj: Any) -> Any:
    new = walk.memo[address(obj)] = object.__new__(type(obj))
    walk.fill_later(_fill_node, obj, new)
    return new


def _fill_node(walk: Any, obj: Any, new: Any) -> None:
    _keras.copy_node(obj, new, walk.copy_of)


def _make_tracker(walk: Any, obj: Any) -> Any:
    new = walk.memo[address(obj)] = object.__new__(type(obj))
    if not _keras.copy_tracker(obj, new, walk):
        walk.note_tracker(obj, new)
    return new


def _noted(collection: str) -> Tailor:
    """Returns a tailor for instances that are also listed on the walk."""

    def tailor(kind: type) -> Maker:
        if is_open(kind):
            return instance_maker(fill_attributes, noted_in=collection)

        def make(walk: Any, obj: Any) -> Any:
            new = make_instance(walk, obj)
            getattr(walk, collection).append((obj, new))
            return new

        return make

    return tailor


# Who makes a maker to the measure of a class.
TAILORS: dict[type, Tailor] = {
    _keras.Variable: always(_make_variable),
    _keras.KerasTensor: always(_make_tensor),
    _keras.Operation: always(_make_operation),
    _keras.BaseOptimizer: _noted("optimizers"),
    _keras.Metric: _noted("metrics"),
    _keras.SeedGenerator: _noted("seed_generators"),
    _keras.Initializer: _noted("initializers"),
    _keras.Node: always(_make_node),
    _keras.Tracker: always(_make_tracker),
    _keras.KerasSaveable: instance_tailor,
}
