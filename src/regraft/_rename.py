"""Gives a model, its layers and the paths of its variables other names."""

from __future__ import annotations

from collections import Counter
from typing import Any

from . import _keras
from ._errors import UsageError, explain
from ._identity import address


def rename(walk: Any, new: Any, *, name: str | None, prefix: str | None) -> None:
    """Renames a fresh copy in place.

    `prefix` goes before the name of the model and of every operation of its
    graphs, at each level of nested models. Parts of a composite layer keep
    their names: they are told apart by the path of the layer around them.

    Args:
        walk: The walk that made the copy.
        new: The copy.
        name: The model's new name.
        prefix: Put before the names of the model and its layers.
    """
    names: dict[int, str] = {}
    if prefix:
        copied = {address(operation) for _, operation in walk.operations}
        inside = [op for op in operations_of_models(new) if address(op) in copied]
        names = {address(op): prefix + op.name for op in inside}
    if name is not None or prefix:
        names[address(new)] = name if name is not None else f"{prefix}{new.name}"
    _check_unique(new, names)
    moved = _Paths(new, names, prefix or "")
    outputs = _output_names(new, names)
    for _, operation in walk.operations:
        if address(operation) in names:
            _keras.set_name(operation, names[address(operation)])
        _keras.move_paths(operation, moved)
    slots, paths = {}, {}
    optimizers = [optimizer for _, optimizer in walk.optimizers]
    layers = [operation for _, operation in walk.operations]
    slots_of_optimizers = _keras.held_beside_layers(optimizers, layers)
    for _, variable in walk.variables:
        old, path = variable.path, moved(variable.path)
        if path != old and address(variable) not in slots_of_optimizers:
            paths[old] = path
            slots[old.replace("/", "_")] = path.replace("/", "_")
            _keras.set_path(variable, path)
    for optimizer in optimizers:
        _keras.rename_slots(optimizer, slots)
    _keras.move_optimizer_paths(optimizers, paths)
    # Nothing else than a path has the slashes and names of one.
    told = {old: new for old, new in paths.items() if "/" in old}
    for _, holder in (*walk.optimizers, *walk.operations) if told else ():
        _keras.retell(holder, told)
    for _, operation in walk.operations:
        if isinstance(operation, _keras.Trainer):
            _keras.rename_outputs(operation, outputs)
        _keras.retrack(operation)


def rename_layer(layer: Any, name: str) -> dict[str, str]:
    """Renames one operation in place, with the paths of what is inside it.

    Args:
        layer: The operation.
        name: Its new name.

    Returns:
        The new path of each variable whose path changed, by the old one.
    """
    old, start = layer.name, _keras.path_of_layer(layer)
    _keras.set_name(layer, name)
    if not isinstance(layer, _keras.Layer):
        return {}
    parent, _, last = (start or old).rpartition("/")
    if last != old:
        return {}
    before = f"{parent}/{old}" if parent else old
    after = f"{parent}/{name}" if parent else name

    def moved(path: str) -> str:
        inside = path == before or path.startswith(f"{before}/")
        return after + path[len(before) :] if inside else path

    found = {}
    for below in _keras.all_layers(layer):
        _keras.move_paths(below, moved)
        for variable in _keras.own_variables(below):
            path = moved(variable.path)
            if path != variable.path:
                found[variable.path] = path
                _keras.set_path(variable, path)
        _keras.retrack(below)
    return found


def operations_of_models(model: Any) -> list[Any]:
    """Returns a model and the operations of every model inside it, each once."""
    found: dict[int, Any] = {}
    stack = [model]
    while stack:
        current = stack.pop()
        if address(current) in found:
            continue
        found[address(current)] = current
        if isinstance(current, _keras.Model | _keras.Function):
            graph = _keras.inner_graph(current)
            inside = list(graph.operations) if graph is not None else []
            if isinstance(current, _keras.Layer):
                inside += _keras.sublayers(current)
            stack.extend(inside)
    return list(found.values())


def _check_unique(model: Any, names: dict[int, str]) -> None:
    graph = _keras.inner_graph(model) if isinstance(model, _keras.Operation) else None
    if graph is None:
        return
    used = Counter(names.get(address(op), op.name) for op in graph.operations)
    doubled = [name for name, count in used.items() if count > 1]
    if doubled:
        raise UsageError(
            explain(
                "Renaming would give two layers of the model the same name.",
                where=f"{model.name}/{doubled[0]}",
                expected="names that are unique within the model",
                received=f"{doubled[0]!r} {used[doubled[0]]} times",
                fix="choose another `prefix=`",
            )
        )


def _output_names(model: Any, names: dict[int, str]) -> dict[str, str]:
    operations = operations_of_models(model)
    return {op.name: names[address(op)] for op in operations if address(op) in names}


class _Paths:
    """Maps the old path of anything inside a model to its new path.

    What was built outside the layer that holds it has a path that starts with a
    name of its own; that gets the prefix, too.
    """

    def __init__(self, model: Any, names: dict[int, str], prefix: str) -> None:
        self._prefix = prefix
        self._moved: dict[str, str] = {}
        layers = [op for op in operations_of_models(model) if _keras.path_of_layer(op)]
        for layer in sorted(layers, key=lambda op: _keras.path_of_layer(op).count("/")):
            old = _keras.path_of_layer(layer)
            parent, _, last = old.rpartition("/")
            # A layer may have the path of a model around it, and keep it.
            is_moved = address(layer) in names or old in self._moved
            if last == layer.name and is_moved:
                moved = [self(parent)] if parent else []
                name = names.get(address(layer), last)
                self._moved[old] = "/".join([*moved, name])

    def __call__(self, path: str) -> str:
        head, tail = path, ""
        while head:
            if head in self._moved:
                return self._moved[head] + tail
            head, _, last = head.rpartition("/")
            tail = f"/{last}{tail}"
        return self._prefix + path
