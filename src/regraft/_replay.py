"""Calls the layers of a graph again, on new tensors, to make another graph.

The calls are made in the order in which they were first made, each with the
arguments it was given then. Masks are no arguments: a layer finds the masks of
its inputs by itself, and so does its copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from . import _fresh, _keras, _naming, _transplant
from ._errors import UsageError, UsageTypeError, explain
from ._fit_in_place import Call, FitInPlace
from ._identity import address
from ._inputs import Inputs, like
from ._output_keys import in_order
from ._states import reset_compile_metrics
from ._walk import Walk

CloneFunction = Callable[[Any], Any]
CallFunction = Callable[..., Any]


class Replay:
    """Makes a new graph model out of an old one, and of the models inside it.

    Args:
        model: The model.
        clone_function: Asked for each layer: what takes its place? By default a
            copy with new weights.
        call_function: Calls an operation; by default it is called.
        recursive: Whether the models inside the model, and with a
            `clone_function` the layers inside layers, are made anew as well
            instead of being copied whole.
    """

    def __init__(
        self,
        model: Any,
        *,
        clone_function: CloneFunction | None,
        call_function: CallFunction | None,
        recursive: bool,
    ) -> None:
        self._model = model
        self._clone_function = clone_function
        self._call_function = call_function
        changes = clone_function is not None or call_function is not None
        self._recursive = recursive and changes
        # For the id of each part of the model what takes its place.
        self._made: dict[int, Any] = {}
        self._alive: list[Any] = []
        self._called: set[int] = set()
        self._fitting = FitInPlace(self._made)
        # Layers of a `clone_function` that were built because a call needs a variable.
        self._built_early: set[int] = set()

    def run(self, inputs: Inputs | None) -> Any:
        """Makes the model on given inputs or, by default, on copies of its own."""
        self._copy_parts()
        return self._new_model(self._model, inputs, self._model.name)

    # --- what is copied --------------------------------------------------------

    def _copy_parts(self) -> None:
        """Copies inputs, plain operations and, if nobody else makes them, layers.

        One walk copies them all, so that what they share stays shared.
        """
        parts: dict[int, Any] = {}
        stack, seen = [self._model], set()
        while stack:
            model = stack.pop()
            seen.add(address(model))
            for operation in _operations(model):
                is_layer = isinstance(operation, _keras.Layer)
                if not is_layer or isinstance(operation, _keras.InputLayer):
                    parts[address(operation)] = operation
                elif self._recursive and _is_graph_model(operation):
                    stack.append(operation)
                elif self._clone_function is None:
                    parts[address(operation)] = operation
                elif self._recursive:
                    stack += filter(_is_graph_model, _keras.all_layers(operation))
            stack = [x for x in stack if address(x) not in seen]
        walk = _transplant.PartsWalk(list(parts.values()), self._model)
        self._alive.append(walk)
        walk.run()
        _fresh.redraw(walk, None)
        reset_compile_metrics(walk)
        _keras.rebuild_optimizer(optimizer for _, optimizer in walk.optimizers)
        self._made.update(walk.memo)
        self._fitting.note_copies([self._made[part] for part in parts])

    # --- layers ----------------------------------------------------------------

    def _new_operation(self, operation: Any, where: str) -> Any:
        """Returns what takes the place of an operation, making it if need be."""
        if address(operation) not in self._made:
            where = f"{where}/{operation.name}"
            if self._recursive and _is_graph_model(operation):
                new = self._new_model(operation, None, where)
            else:
                new = self._ask(operation, where)
                if self._recursive:
                    new = self._exchange_parts(operation, new, where)
            self._made[address(operation)] = new
        return self._made[address(operation)]

    def _ask(self, layer: Any, where: str) -> Any:
        assert self._clone_function is not None
        new = self._clone_function(layer)
        if not isinstance(new, _keras.Layer):
            raise UsageTypeError(
                explain(
                    "`clone_function` did not return a layer.",
                    where=where,
                    expected="a `keras.Layer` to be called in place of "
                    f"{type(layer).__name__} {layer.name!r}",
                    received=f"{new!r} (of type {type(new).__name__})",
                    fix="return the layer itself to keep it",
                )
            )
        return new

    def _exchange_parts(self, old: Any, new: Any, where: str) -> Any:
        """Asks for the layers inside a layer too, and puts them into its copy.

        A layer of another class than the original's has parts of its own.
        """
        parts = _keras.sublayers(old)
        if not parts or type(new) is not type(old):
            return new
        made = [self._new_operation(part, where) for part in parts]
        if new is old and all(a is b for a, b in zip(parts, made, strict=True)):
            return old
        if new is not old and len(_keras.sublayers(new)) != len(parts):
            new.build_from_config(old.get_build_config())  # It makes them there.
        own = _keras.sublayers(new)
        if [type(part) for part in own] != [type(part) for part in parts]:
            return new
        if new.built:  # It may hold weights of the layers inside.
            for part, other in zip(parts, made, strict=True):
                if part.built and not other.built:
                    with keras.name_scope(new.name):
                        other.build_from_config(part.get_build_config())
        pairs = list(zip(own, made, strict=True))
        new = _transplant.exchange(new, pairs, self._model, where)
        if new.built:
            _keras.derive_state(new)
        return new

    def _new_variable(self, variable: Any, graph: Any, where: str) -> Any:
        """Returns what takes the place of a variable that a call was given."""
        self._fitting.note_use(variable, where)
        layers = [op for op in graph.operations if isinstance(op, _keras.Layer)]
        owners = [x for x in layers if any(v is variable for v in x.variables)]
        found = self._made.get(address(variable))
        if not owners and found is None:  # Of no layer: all users get the same copy.
            walk = Walk(variable)
            self._alive.append(walk)
            found = self._made[address(variable)] = walk.run()
        if not owners:
            return found
        new = self._new_operation(owners[0], where)
        if found is None:
            if not new.built:
                new.build_from_config(owners[0].get_build_config())
                self._built_early.add(address(new))
            pairs = _transplant.counterparts(owners[0], new)
            self._made.update({address(a): b for a, b in pairs})
            found = self._made[address(variable)]
        if found is variable and new is not owners[0]:
            raise _transplant.no_counterpart(variable, new, owners[0], where)
        return found

    # --- calls -----------------------------------------------------------------

    def _play(self, graph: Any, tensors: dict[int, Any], where: str) -> None:
        """Makes the calls of a graph again; notes what its tensors became."""

        def new_argument(x: Any) -> Any:
            if isinstance(x, _keras.KerasTensor):
                return tensors[address(x)]
            if isinstance(x, _keras.Variable):
                return self._new_variable(x, graph, where)
            return self._made.get(address(x), x)

        masks = []
        for node in _keras.call_order(graph):
            inputs = _keras.argument_tensors(node)
            if node.is_input or any(address(x) not in tensors for x in inputs):
                continue
            before = _keras.call_arguments(node)
            args, kwargs = keras.tree.map_structure(new_argument, before)
            changed = any(x.shape != tensors[address(x)].shape for x in inputs)
            new = self._new_operation(node.operation, where)
            there = f"{where}/{node.operation.name}"
            with _keras.scope_around(node.operation):
                if changed or self._fitting.has_changed(new):
                    new = self._refit(
                        node.operation, new, before, (args, kwargs), there
                    )
                made = self._call(new, args, kwargs, there, len(node.outputs))
                outputs = keras.tree.flatten(made)
                if self._clone_function is not None and new is not node.operation:
                    outputs = in_order(node.operation, before, new, made, there)
            self._called.add(address(node.operation))
            self._fitting.note_call(new)
            for old, output in zip(node.outputs, outputs, strict=True):
                tensors[address(old)] = output
                masks.append((_keras.mask_of(old), _keras.mask_of(output)))
        _naming.follow_masks(masks, tensors, self._made)
        outputs = keras.tree.flatten(_outputs(graph, tensors, where))
        _naming.name_apart(outputs, self._made, [])

    def _refit(self, old: Any, new: Any, before: Call, now: Call, where: str) -> Any:
        is_own = self._clone_function is None or address(new) in self._built_early
        if not is_own or address(old) in self._called:
            return new
        return self._fitting.fit(old, new, before, now, where)

    def _call(
        self, new: Any, args: Any, kwargs: dict[str, Any], where: str, count: int
    ) -> Any:
        try:
            if self._call_function is not None:
                outputs = self._call_function(new, *args, **kwargs)
            else:
                outputs = new(*args, **kwargs)
        except Exception as error:
            error.add_note(f"This happened when `clone_model` called {where}.")
            raise
        flat = keras.tree.flatten(outputs)
        symbolic = [x for x in flat if isinstance(x, _keras.KerasTensor)]
        if len(flat) != count or len(symbolic) != count:
            by = "`call_function`" if self._call_function is not None else repr(new)
            raise UsageError(
                explain(
                    "A layer was called again and returned other outputs than the "
                    "original.",
                    where=where,
                    expected=f"{count} symbolic tensor(s), like the original",
                    received=f"{len(flat)} value(s) from {by}: {outputs!r}",
                    fix="return as many tensors as the original layer does",
                )
            )
        return outputs

    # --- models ----------------------------------------------------------------

    def _new_model(self, model: Any, inputs: Inputs | None, where: str) -> Any:
        if isinstance(model, _keras.Sequential):
            return self._new_sequential(model, inputs, where)
        if inputs is None:
            inputs = self._own_inputs(model)
        tensors = dict(zip(map(address, model.inputs), inputs.tensors, strict=True))
        self._play(model, tensors, where)
        outputs = _outputs(model, tensors, where)
        graph = _keras.Functional(inputs.struct, outputs, name=model.name)
        memo = self._memo(model, tensors)
        memo.update({address(a): b for a, b in _keras.graph_fields(model, graph)})
        new, walk = _transplant.new_model(model, memo)
        replaced = {
            address(memo[address(x)]) for x in model.operations if address(x) in memo
        }
        _keras.track_graph_layers(new, replaced)
        names = zip(model.output_names, graph.output_names, strict=True)
        _keras.rename_outputs(new, {a: b for a, b in names if a != b})
        _keras.derive_state(new)
        _transplant.reset_optimizers(walk, model, new)
        return new

    def _new_sequential(self, model: Any, inputs: Inputs | None, where: str) -> Any:
        old = _keras.inner_graph(model)
        if inputs is None and old is not None:
            inputs = self._own_inputs(old)
        if inputs is None:
            return self._unbuilt_sequential(model, where)
        tensor = inputs.tensors[0]
        tensors: dict[int, Any] = {}
        if old is not None:
            tensors[address(old.inputs[0])] = tensor
            self._play(old, tensors, where)
            tensor = _outputs(old, tensors, where)
        else:
            for layer in model.layers:
                new = self._new_operation(layer, where)
                there = f"{where}/{layer.name}"
                with keras.name_scope(model.name):  # As `Sequential.build` does.
                    made = self._call(new, (tensor,), {}, there, 1)
                [tensor] = keras.tree.flatten(made)
        name = None if old is None else old.name
        graph = _keras.Functional(inputs.struct, tensor, name=name)
        layers = _keras.call_chain(graph)
        if layers is None:
            return _as_functional(model, graph)
        memo = self._memo(old, tensors) if old is not None else dict(self._made)
        if old is not None:
            memo[address(old)] = graph
        new, walk = _transplant.new_model(model, memo)
        _keras.set_sequence(new, layers, graph)
        _keras.derive_state(new)
        _transplant.reset_optimizers(walk, model, new)
        return new

    def _unbuilt_sequential(self, model: Any, where: str) -> Any:
        if self._call_function is not None and model is self._model:
            raise UsageError(
                explain(
                    "The layers of this Sequential model have not been called yet, "
                    "so `call_function` cannot call them again.",
                    where=where,
                    expected="a model that is built",
                    received=repr(model),
                    fix="call `model.build(input_shape)` first, or pass "
                    "`input_tensors=`",
                )
            )
        for layer in model.layers:
            self._new_operation(layer, where)
        new, walk = _transplant.new_model(model, dict(self._made))
        _keras.derive_state(new)
        _transplant.reset_optimizers(walk, model, new)
        return new

    def _own_inputs(self, graph: Any) -> Inputs:
        struct = keras.tree.map_structure(self._own_input, graph.input)
        return Inputs(struct, keras.tree.flatten(struct))

    def _own_input(self, tensor: Any) -> Any:
        found = self._made.get(address(tensor))
        return like(tensor) if found is None else found

    def _memo(self, graph: Any, tensors: dict[int, Any]) -> dict[int, Any]:
        """Returns what each part of an old graph became."""
        memo = {**self._made, **tensors}
        for node in _keras.own_nodes(graph):
            new = _keras.producer(tensors.get(address(node.outputs[0])))
            if new is not None:
                memo[address(node)] = new
                if node.is_input:
                    memo[address(node.operation)] = new.operation
        if self._clone_function is not None:
            for old in graph.operations:
                if isinstance(old, _keras.Layer) and address(old) in self._made:
                    pairs = _transplant.counterparts(old, self._made[address(old)])
                    memo.update(
                        {address(a): b for a, b in pairs if address(a) not in memo}
                    )
        return memo


def _operations(model: Any) -> list[Any]:
    """Returns the operations that a graph model calls."""
    graph = _keras.inner_graph(model)
    found = list(graph.operations) if graph is not None else []
    if isinstance(model, _keras.Sequential):
        found += _keras.sequence_of(model)
    return found


def _is_graph_model(layer: Any) -> bool:
    return isinstance(layer, _keras.Functional | _keras.Sequential)


def _outputs(graph: Any, tensors: dict[int, Any], where: str) -> Any:
    for i, (path, tensor) in enumerate(keras.tree.flatten_with_path(graph.output)):
        if address(tensor) not in tensors:
            name = ".".join(str(part) for part in path) or str(i)
            raise UsageError(
                explain(
                    f"Output {name!r} of the model could not be computed.",
                    where=f"{where}, tensor {tensor.name!r}",
                    expected="an output that depends on the inputs alone",
                    received="one that depends on a tensor from outside the model",
                    fix="make the model again from inputs that its outputs need",
                )
            )
    return keras.tree.map_structure(
        lambda tensor: tensors[address(tensor)], graph.output
    )


def _as_functional(model: Any, graph: Any) -> Any:
    """Makes a Functional model of a Sequential that is no sequence any more."""
    _keras.set_name(graph, model.name)
    if not model.trainable:
        graph.trainable = False
    if model.compiled:
        graph.compile_from_config(model.get_compile_config())
    return graph
