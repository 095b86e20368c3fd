"""Lets the shapes and dtypes that a graph remembers follow a change.

A graph whose inputs get another shape, or whose layers get another precision, makes
the same calls as before. So nothing is wired again: each call that the change reaches
is asked, on symbolic tensors of no graph, what it returns now, and the answer is
written on the tensors that are there. Names, nodes, masks, ties, weights and training
state stay as they are. What cannot follow is refused here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from . import _keras, _rebuild, _shape_checks
from ._errors import PrecisionError, explain
from ._identity import address
from ._rows import Rows, check_rows, rows_before

Shape = tuple[int | None, ...]
Spec = tuple[Shape, str]


class Follow:
    """Rewrites the specs of a copied model's graphs, in place.

    Args:
        model: The copy, a model with a graph.
        touched: The ids of layers that compute in another precision now.
        kept: The ids of layers that belong to the original too, and must not change.
    """

    def __init__(self, model: Any, *, touched: set[int], kept: set[int]) -> None:
        self._model = model
        self._touched = _with_holders(model, touched)
        self._kept = kept
        # What was written on tensors before, by id.
        self._before: dict[int, Spec] = {}
        self._calls: dict[int, list[list[Any]]] = {}
        self._built: set[int] = set()
        self._visited: set[int] = set()
        # Layers that were built anew, and the shapes that layers are called with.
        self._renewed: set[int] = set()
        self._shapes: dict[int, list[list[Shape]]] = {}

    def replaces(self, tensor: Any, old: Spec) -> None:
        """Says that a tensor stands where one of another spec stood."""
        if (tensor.shape, tensor.dtype) != old:
            self._before[address(tensor)] = old

    def set_input(self, tensor: Any, shape: Shape, dtype: str) -> None:
        """Gives an input of a graph another shape and dtype."""
        self._write(tensor, shape, dtype)
        layer = _keras.input_layer_of(tensor)
        if layer is not None:
            _keras.set_input_spec(layer, shape, dtype)

    def run(self) -> None:
        """Follows the changes through the model, and through the models inside it."""
        operations = _operations(self._model)
        with (
            _keras.quiet_globals(),
            _keras.no_traces(operations),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            rows = self._rows_before()
            for layer in _keras.all_layers(self._model):
                graph = _keras.inner_graph(layer)
                if graph is not None and address(graph) not in self._visited:
                    self._inside(layer, layer.name)
            check_rows(self._model, rows)

    def _rows_before(self) -> Rows | None:
        graph = _keras.inner_graph(self._model)
        inputs = [] if graph is None else graph.inputs
        if all(self._old(x)[0] == x.shape for x in inputs):
            return None
        old = _map_tensors(lambda x: _keras.detached(x, self._old(x)), graph.input)
        return rows_before(self._model, old, graph.input)

    # --- graphs ----------------------------------------------------------------

    def _inside(self, model: Any, where: str) -> None:
        graph = _keras.inner_graph(model)
        self._visited.add(address(graph))
        self._note_input_shapes(model, graph)
        for node in _keras.call_order(graph):
            if node.is_input:
                continue
            changed = any(map(self._changed, _keras.argument_tensors(node)))
            there = f"{where}/{node.operation.name}"
            if not changed and address(node.operation) not in self._touched:
                self._note_call(node, there)
                self._check_alike(node, there)
                continue
            outputs = self._call(node, there)
            self._check_alike(node, there)
            for old, new in zip(node.outputs, outputs, strict=True):
                self._write(old, new.shape, new.dtype)
                self._follow_mask(_keras.mask_of(old), _keras.mask_of(new))

    def _changed(self, tensor: Any) -> bool:
        return address(tensor) in self._before

    def _old(self, tensor: Any) -> Spec:
        return self._before.get(address(tensor), (tensor.shape, tensor.dtype))

    def _write(self, tensor: Any, shape: Shape, dtype: str) -> None:
        if (tensor.shape, tensor.dtype) != (shape, dtype):
            self._before.setdefault(address(tensor), (tensor.shape, tensor.dtype))
            _keras.set_spec(tensor, shape, dtype)

    def _follow_mask(self, old: Any, new: Any) -> None:
        """Writes the shapes of masks, and of what they are computed from."""
        pairs = [(old, new)]
        while pairs:
            mask, other = pairs.pop()
            if mask is None or other is None or mask.shape == other.shape:
                continue
            self._write(mask, other.shape, mask.dtype)
            made, by = _keras.producer(mask), _keras.producer(other)
            if (
                made is None
                or by is None
                or type(made.operation) is not type(by.operation)
            ):
                continue
            pairs += zip(made.input_tensors, by.input_tensors, strict=False)

    def _note_input_shapes(self, model: Any, graph: Any) -> None:
        """Lets what a model says about its inputs follow them."""
        shapes = {self._old(x)[0]: x.shape for x in graph.inputs if self._changed(x)}
        if not shapes or address(model) in self._kept:
            return
        built = _keras.build_shapes(model)
        if built is not None:
            moved = {k: _shape_checks.move_shapes(v, shapes) for k, v in built.items()}
            _keras.set_build_shapes(model, moved)
        if _keras.has_own_constructor(model):
            _follow_config(model, shapes)

    # --- calls -----------------------------------------------------------------

    def _as_call(self, node: Any, where: str) -> _shape_checks.Call:
        arguments = _keras.call_arguments(node)
        return _shape_checks.Call(
            operation=node.operation,
            where=where,
            before=_map_tensors(lambda x: _keras.detached(x, self._old(x)), arguments),
            now=_map_tensors(_keras.detached, arguments),
            sources=_keras.argument_tensors(node),
        )

    def _call(self, node: Any, where: str) -> list[Any]:
        operation = node.operation
        call = self._as_call(node, where)
        args, kwargs = call.now
        if _keras.inner_graph(operation) is not None:
            self._enter(operation, args, kwargs, where)
        with self._watched(operation) as seen:
            outputs = self._ask(call)
        for model, shapes in seen:
            self._calls.setdefault(address(model), []).extend(shapes)
            self._enter_with(model, f"{where}/{model.name}")
        if call.is_reshaped:
            old = [self._old(x)[0] for x in node.outputs]
            _shape_checks.check(call, old, [x.shape for x in outputs])
            self._rebuild(call)
        return outputs

    def _ask(self, call: _shape_checks.Call) -> list[Any]:
        """Calls an operation; if it cannot be, once more after it was built anew."""
        args, kwargs = call.now
        try:
            return keras.tree.flatten(call.operation(*args, **kwargs))
        except Exception as error:  # Whatever a layer says to what it is given.
            refusal = self._refusal(call, error)
            refusal.__cause__ = error
        if call.is_reshaped and self._rebuild(call, has_failed=True):
            try:
                return keras.tree.flatten(call.operation(*args, **kwargs))
            except Exception:  # Its first words say more.
                raise refusal from refusal.__cause__
        raise refusal

    def _rebuild(self, call: _shape_checks.Call, *, has_failed: bool = False) -> bool:
        """Lets a layer work out again what it worked out from its first input."""
        layer = call.operation
        if not isinstance(layer, _keras.Layer) or address(layer) in self._built:
            return False
        self._built.add(address(layer))
        if _keras.inner_graph(layer) is not None:
            return False
        is_kept = address(layer) in self._kept
        is_renewed = _rebuild.rebuild(call, is_kept=is_kept, has_failed=has_failed)
        if is_renewed:
            self._renewed.add(address(layer))
        return is_renewed

    def _check_alike(self, node: Any, where: str) -> None:
        """Refuses two shapes for a layer that was built anew for one of them."""
        layer = node.operation
        if not isinstance(layer, _keras.Layer):
            return
        shapes = [x.shape[1:] for x in _keras.argument_tensors(node)]
        seen = self._shapes.setdefault(address(layer), [])
        seen.append(shapes)
        if address(layer) in self._renewed and any(other != shapes for other in seen):
            other = next(other for other in seen if other != shapes)
            raise _shape_checks.refusal(
                self._as_call(node, where),
                f"it is called with {other} elsewhere (without the batch axis), and "
                "keeps numbers that follow from one shape",
                "change all inputs that this layer is called with",
            )

    def _refusal(self, call: _shape_checks.Call, error: Exception) -> Exception:
        if call.is_reshaped:
            return _shape_checks.cannot_follow(call, error)
        return PrecisionError(
            explain(
                "A layer cannot be called in this precision.",
                where=f"{call.where} ({type(call.operation).__name__})",
                expected=f"inputs of {call.dtypes(call.before)}, as in the original",
                received=f"inputs of {call.dtypes(call.now)}: "
                f"{type(error).__name__}: {_shape_checks.first_line(error)}",
                fix="leave this layer as it is, with `dtype={...}` naming the others",
            )
        )

    # --- models inside ---------------------------------------------------------

    def _note_call(self, node: Any, where: str) -> None:
        """Notes the shapes of a call that stays: another call may be one that changes.

        A model that is called on both then has to take both.
        """
        layer = node.operation
        if not isinstance(layer, _keras.Layer):
            return
        graph = _keras.inner_graph(layer)
        if graph is not None:
            self._note_shapes(layer, *_keras.call_arguments(node))
            if any(map(self._changed, graph.inputs)):
                self._enter_with(layer, where)
        elif any(True for _ in _held_models(layer)):
            self._call(node, where)

    def _enter(self, model: Any, args: Any, kwargs: Any, where: str) -> None:
        """Follows a call of a model into its own graph."""
        self._note_shapes(model, args, kwargs)
        self._enter_with(model, where)

    def _note_shapes(self, model: Any, args: Any, kwargs: Any) -> None:
        graph = _keras.inner_graph(model)
        given = args[0] if args else kwargs.get("inputs")
        if isinstance(given, dict) and not isinstance(graph.input, dict):
            flat = [given.get(x.name) for x in graph.inputs]
        else:
            flat = keras.tree.flatten(given)
        shapes = [None if x is None else x.shape for x in flat]
        self._calls.setdefault(address(model), []).append(shapes)

    def _enter_with(self, model: Any, where: str) -> None:
        graph = _keras.inner_graph(model)
        changed = address(model) in self._touched
        calls = [c for c in self._calls[address(model)] if len(c) == len(graph.inputs)]
        for i, tensor in enumerate(graph.inputs):
            given = [call[i] for call in calls if call[i] is not None]
            shape = _common(self._old(tensor)[0], given)
            changed = changed or self._changed(tensor) or shape != tensor.shape
            self.set_input(tensor, shape, tensor.dtype)
        if changed:
            self._inside(model, where)

    @contextmanager
    def _watched(self, layer: Any) -> Iterator[list[Any]]:
        """Notes with which shapes a layer calls the models that it holds.

        A layer is Python code, so that its calls can only be watched. Until it is
        known what a model inside is given, it takes everything.
        """
        seen: list[Any] = []
        is_plain = not isinstance(layer, _keras.Layer)
        if is_plain or _keras.inner_graph(layer) is not None:
            yield seen
            return
        models = [x for x in _keras.all_layers(layer) if _keras.inner_graph(x)]
        watched = {address(model): _keras.watch_inputs(model) for model in models}
        try:
            yield seen
        finally:
            for model in models:
                _keras.unwatch_inputs(model)
            held = _held_models(layer)
            seen += [(model, watched[address(model)]) for model in held]


def _held_models(layer: Any) -> Iterator[Any]:
    """Yields the models with a graph that a layer calls from its own code."""
    stack, seen = [*_keras.sublayers(layer)], set()
    while stack:
        part = stack.pop()
        if address(part) in seen:
            continue
        seen.add(address(part))
        if _keras.inner_graph(part) is not None:
            yield part
        else:
            stack += _keras.sublayers(part)


def _operations(model: Any) -> list[Any]:
    found: dict[int, Any] = {}
    for layer in _keras.all_layers(model):
        found[address(layer)] = layer
        graph = _keras.inner_graph(layer)
        if graph is not None:
            found.update({address(op): op for op in graph.operations})
    return list(found.values())


def _with_holders(model: Any, touched: set[int]) -> set[int]:
    """Returns layers and those that hold them."""
    if not touched:
        return set()
    held = ((x, _keras.all_layers(x)) for x in _keras.all_layers(model))
    return {
        address(x) for x, inside in held if any(address(y) in touched for y in inside)
    }


def _map_tensors(function: Any, arguments: Any) -> Any:
    def mapped(x: Any) -> Any:
        return function(x) if isinstance(x, _keras.KerasTensor) else x

    return keras.tree.map_structure(mapped, arguments)


def _common(old: Shape, given: list[Shape]) -> Shape:
    """Returns the shape of an input that is called with all of these.

    An axis that was open stays open.
    """
    if not given or any(len(shape) != len(old) for shape in given):
        return given[0] if given else old
    axes = zip(old, *given, strict=True)
    return tuple(
        None if was is None or len(set(sizes)) > 1 else sizes[0] for was, *sizes in axes
    )


def _follow_config(model: Any, shapes: dict[Shape, Shape]) -> None:
    """Lets attributes of a model follow that its configuration reports as its shape.

    A backbone keeps the `image_shape` that its constructor was given, and a model
    that is loaded again is made from it.
    """
    try:
        config = model.get_config()
    except Exception:  # Without a configuration there is nothing that must follow.
        return
    moved = {old[1:]: new[1:] for old, new in shapes.items()}
    for name, value in config.items():
        own = vars(model).get(name)
        is_shape = isinstance(value, list | tuple) and isinstance(own, list | tuple)
        if is_shape and tuple(own) == tuple(value) and tuple(value) in moved:
            setattr(model, name, type(value)(moved[tuple(value)]))
