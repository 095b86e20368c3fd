"""Puts a new graph, or new layers, into a copy of a model or layer.

The walk copies all that is not the graph: class, attributes, layers attached
outside the graph, configuration of `compile()`. Wherever it meets a part of the
old graph it finds the new part in its memo.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from . import _fresh, _keras
from ._core import Core
from ._errors import UsageError, explain
from ._ghosts import SameVariables, spare_values
from ._identity import address
from ._pairing import paired_variables
from ._parts import path_between
from ._rules import Rules
from ._states import reset_compile_metrics
from ._walk import Walk
from ._wiring import Wiring


class PartsWalk(Walk):
    """A walk whose root is not the model itself but parts of it."""

    def __init__(
        self,
        root: Any,
        model: Any,
        *,
        rules: Rules | None = None,
    ) -> None:
        super().__init__(root, rules=rules)
        self.model = model

    def path_of(self, obj: Any) -> str:
        """Returns the way from the model to an object, for a message."""
        return path_between(self.model, obj, self.model.name)


class _Adoption(Wiring):
    """Numbers the nodes of graphs as the operations list them."""

    def __init__(self) -> None:
        super().__init__()
        self._adopting: list[Any] = []

    def note_graph(self, graph: Any, new: Any) -> None:
        self._adopting.append(new)

    def finish(self, core: Core) -> None:
        super().finish(core)
        for graph in self._adopting:
            _keras.adopt_nodes(graph)


class _Transplant(PartsWalk):
    """A walk around parts, calls among them, that it did not make itself."""

    new_wiring = _Adoption


class _WithoutSlots(Rules):
    """Takes no memory for the state of optimizers, which starts anew."""

    def __init__(self) -> None:
        self.walk: Walk | None = None
        self._slots: set[int] | None = None

    def value(self, variable: Any) -> Any:
        if self._slots is None and self.walk is not None:
            optimizers = self.walk.optimizers
            self._slots = {
                address(v) for old, _ in optimizers for v in _keras.slots(old)
            }
        is_slot = self._slots is not None and address(variable) in self._slots
        return None if is_slot else super().value(variable)


def new_model(model: Any, memo: dict[int, Any]) -> tuple[Any, Walk]:
    """Copies a model around new parts; what is attached to it gets new weights.

    Args:
        model: The model.
        memo: For the id of each old part what takes its place.

    Returns:
        The new model, and the walk that made it.
    """
    rules = _WithoutSlots()
    walk = rules.walk = _Transplant(model, model, rules=rules)
    walk.memo.update(memo)
    walk.memo.pop(address(model), None)
    _drop_derived_state(walk, model)
    new = walk.run()
    _fresh.redraw(walk, None)
    reset_compile_metrics(walk)
    return new, walk


class _Compiled(Rules):
    """Leaves the state of `compile()` out, if it is not wanted."""

    def __init__(self, *, dropped: bool) -> None:
        self._dropped = dropped

    def attributes(self, obj: Any, state: dict[str, Any]) -> None:
        if self._dropped:
            _keras.drop_compile_state(state)


def rules_of(compiled: str) -> Rules:
    """Returns the rules by which the state of `compile()` is copied, or not."""
    return _Compiled(dropped=compiled == "drop")


def shell(model: Any, memo: dict[int, Any], *, compiled: str) -> tuple[Any, Walk]:
    """Copies a model around new parts; what is attached to it keeps its weights.

    Args:
        model: The model.
        memo: For the id of each old part what takes its place.
        compiled: `"drop"` for a model that is not compiled.

    Returns:
        The new model, and the walk that made it.
    """
    walk = _Transplant(model, model, rules=rules_of(compiled))
    walk.memo.update(memo)
    # A layer that holds the model may have brought a copy of it already.
    walk.memo.pop(address(model), None)
    walk.memo.pop(address(vars(model)), None)
    _drop_derived_state(walk, model)
    return walk.run(), walk


def reset_optimizers(walk: Walk, model: Any, new: Any) -> None:
    """Starts the optimizers of a model's copy anew.

    Those whose variables all have a counterpart are built again, as they were;
    the others wait for the first training step to show them their variables.
    """
    same_count = len(model.trainable_variables) == len(new.trainable_variables)
    rebuilt = []
    for old, optimizer in walk.optimizers:
        if same_count and _keras.has_left_variables(old, optimizer):
            rebuilt.append(optimizer)
        elif old.built:
            _keras.unbuild_optimizer(optimizer)
    _keras.rebuild_optimizer(rebuilt)


def exchange(layer: Any, pairs: list[tuple[Any, Any]], model: Any, where: str) -> Any:
    """Returns a layer like `layer`, on its variables, with other sublayers.

    Args:
        layer: The layer.
        pairs: Each sublayer with the one that takes its place.
        model: The model that it belongs to.
        where: The path of the layer, for messages.
    """
    walk = _Transplant(layer, model, rules=SameVariables())
    spare_values(walk, [layer])
    for old, new in pairs:
        walk.memo.update({address(a): b for a, b in counterparts(old, new)})
    _drop_derived_state(walk, layer)
    made = walk.run()
    for old, new in pairs:
        lost = _made_by(old, made)
        for variable in new.variables:
            lost.pop(address(variable), None)
        if lost:
            raise no_counterpart(next(iter(lost.values())), new, old, where)
        kept = set(map(address, _keras.all_layers(old)))
        for part in _keras.all_layers(new):
            if address(part) not in kept:
                _aim_anew(part, layer, made)
    _keras.derive_state(made)
    return made


def _aim_anew(part: Any, layer: Any, made: Any) -> None:
    """Lets a part that knows the layer around it weakly know the new one."""
    for name, value in _keras.own_state(part).items():
        if type(value) is weakref.ref and value() is layer:
            vars(part)[name] = weakref.ref(made)


def _made_by(layer: Any, user: Any) -> dict[int, Any]:
    """Returns the variables that a layer made and another one holds, by their ids."""
    paths = {_keras.path_of_layer(part) for part in _keras.all_layers(layer)}
    held = _keras.held_by_layers([user])
    return {
        address(variable): variable
        for variable in layer.variables
        if address(variable) in held and variable.path.rpartition("/")[0] in paths
    }


def no_counterpart(variable: Any, new: Any, old: Any, where: str) -> UsageError:
    """Returns the error for a variable that somebody uses, and a new layer has not."""
    return UsageError(
        explain(
            "A variable of a layer is used elsewhere in the model, and the layer in "
            "its place has no such variable.",
            where=where,
            expected=f"a layer with a counterpart of {variable.path!r}",
            received=f"{new!r} in place of {old!r}",
            fix="put a layer with the same weights in its place",
        )
    )


def counterparts(old: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the parts of a layer with those of the layer in its place.

    A variable that has no counterpart stands for itself.
    """
    yield old, new
    inside, others = _keras.all_layers(old), _keras.all_layers(new)
    if [type(x) for x in inside] == [type(x) for x in others]:
        yield from zip(inside, others, strict=True)
    yield from paired_variables(old, new)


def _drop_derived_state(walk: Walk, layer: Any) -> None:
    for obj, stand_in in _keras.derived_state(layer):
        walk.remember(obj, stand_in)
