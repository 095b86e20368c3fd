"""Makers of the parts of a Keras model."""

from __future__ import annotations

from functools import partial
from typing import Any

from .. import _keras
from .._core import Fill, LayerParts, empty_like, fill_layer, instance_maker
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


def _fill_tensor(walk: Any, obj: Any, new: Any) -> None:
    """Copies a symbolic tensor and, unless it was cut off, what produced it."""
    state, made_by = _keras.tensor_state(obj)
    walk.translate(state)
    object.__setattr__(new, "__dict__", state)
    if made_by is not None:
        node, wiring = _keras.node_of(made_by), walk.wiring
        wiring.note_tensor(obj, new, node)
        if not wiring.is_cut(obj):
            walk.copy_of(node)


def _operation_maker(kind: type) -> Maker:
    """Returns a maker of layers, models or other operations of a class."""
    is_model = issubclass(kind, (_keras.Trainer, _keras.Function))
    fill = _fill_model if is_model else _fill_layer
    if not is_open(kind):
        fill = partial(_fill_with_slots, fill)

    def make(walk: Any, obj: Any) -> Any:
        try:
            new = walk.remember(obj, object.__new__(type(obj)))
        except TypeError as error:  # It is also a list, or the like.
            raise refuse(walk, obj, str(error)) from error
        walk.operations.append((obj, new))
        walk.fill_later(fill, obj, new)
        return new

    return make


def _fill_layer(walk: Any, obj: Any, new: Any) -> None:
    fill_layer(walk, obj, new, _PARTS, None)


def _fill_model(walk: Any, obj: Any, new: Any) -> None:
    if isinstance(obj, _keras.Trainer):
        _keras.jax_sync(obj)
    fill_layer(walk, obj, new, _PARTS, _prepare_model)


def _fill_with_slots(fill: Fill, walk: Any, obj: Any, new: Any) -> None:
    fill(walk, obj, new)
    fill_slots(walk, obj, new)


def _prepare_model(walk: Any, obj: Any, new: Any, state: dict[str, Any]) -> None:
    """Notes the graph of a model, and leaves out what belongs to its original alone."""
    if _keras.is_graph(obj):
        walk.wiring.note_graph(obj, new)
        for tensor in _keras.foreign_inputs(obj):
            walk.wiring.cut(tensor)
        state.pop("_nodes", None)
        if walk.keep is None:
            for name in _keras.GRAPH_INDICES:
                _copy_index(walk, state.get(name))
    if isinstance(obj, _keras.Trainer):
        _keras.drop_runtime_state(state)
        walk.rules.attributes(obj, state)
        walk.hold(list(state.values()))  # Some were made just now.


def _copy_index(walk: Any, index: Any) -> None:
    if address(index) not in walk.memo:
        new = _keras.copy_graph_index(index, walk.memo, walk.copy_of)
        if new is not None:
            walk.memo[address(index)] = new


def _hollow_list(walk: Any, items: Any, name: str) -> None:
    """Makes a list of the same class, for what will turn out to be the copy's.

    Losses that have values, and are not part of a trace, are copied as any list.
    """
    if name in _keras.LOSS_LISTS and all(map(walk.backend.is_concrete, items)):
        return
    new = empty_like(walk, items)
    is_done = new is not None
    if not is_done:
        new = walk.remember(items, list.__new__(type(items)))
    walk.node_lists.append((items, new, name))
    for attribute, value in () if is_done else vars(items).items():
        if type(value) is list and walk.known(value) is None:
            # TensorFlow's wrapper keeps the items here.
            twin = walk.remember(value, [])
            walk.node_lists.append((value, twin, name))
        else:
            twin = walk.copy_of(value)
        object.__setattr__(new, attribute, twin)


_PARTS = LayerParts(
    _keras.TRACKER,
    _keras.NODE_LISTS,
    _keras.LOSS_LISTS,
    _keras.WRAPPERS,
    _hollow_list,
)


def _fill_node(walk: Any, obj: Any, new: Any) -> None:
    _keras.copy_node(obj, new, walk)


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
    _keras.KerasTensor: always(instance_maker(_fill_tensor, at_once=False)),
    _keras.Operation: _operation_maker,
    _keras.BaseOptimizer: _noted("optimizers"),
    _keras.Metric: _noted("metrics"),
    _keras.SeedGenerator: _noted("seed_generators"),
    _keras.Initializer: _noted("initializers"),
    _keras.Node: always(instance_maker(_fill_node, at_once=False)),
    _keras.Tracker: always(_make_tracker),
    _keras.KerasSaveable: instance_tailor,
}
