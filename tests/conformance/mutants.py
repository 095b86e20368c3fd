"""Faulty cloners: each makes one mistake that real ones made.

`Replay` is a right, if slow, way to clone a functional model: it calls copies of
the layers again on new inputs. A mutant changes one of its steps. `MUTANTS`
names them all, with a model on which the mistake shows and with where it shows.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from conformance import mutant_models as models

import regraft


class Replay:
    """Makes a functional model again, call by call."""

    def __call__(self, model):
        copies = regraft.clone(model).operations
        self.model = model
        self.copies = dict(zip(map(id, model.operations), copies, strict=True))
        self.tensors = {id(x): self.new_input(x) for x in model.inputs}
        for node in self.nodes():
            self.note(node, self.call(node))
        inputs = self.translate(model.input)
        return keras.Model(inputs, self.outputs(), name=model.name)

    def nodes(self):
        by_depth = self.model._nodes_by_depth
        found = [node for depth in sorted(by_depth)[::-1] for node in by_depth[depth]]
        return [node for node in found if not node.is_input]

    def translate(self, struct):
        return keras.tree.map_structure(lambda x: self.tensors.get(id(x), x), struct)

    def new_input(self, tensor):
        return keras.Input(**self.input_arguments(tensor))

    def input_arguments(self, tensor):
        return {
            "batch_shape": tensor.shape,
            "dtype": tensor.dtype,
            "name": tensor.name,
            "sparse": tensor.sparse,
            "optional": tensor._keras_history.operation.optional,
        }

    def operation(self, node):
        return self.copies[id(node.operation)]

    def arguments(self, node):
        return self.translate(node.arguments.args), self.translate(
            node.arguments.kwargs
        )

    def call(self, node):
        args, kwargs = self.arguments(node)
        return keras.tree.flatten(self.operation(node)(*args, **kwargs))

    def note(self, node, outputs):
        for old, new in zip(node.outputs, outputs, strict=True):
            self.tensors[id(old)] = new

    def outputs(self):
        return self.translate(self.model.output)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A faulty cloner.

    Attributes:
        lesson: The number of the mistake, from 1 to 8.
        clone: Makes the faulty copy.
        build: Makes a model on which the mistake shows.
        paths: Parts of the paths that a good comparison reports.
    """

    lesson: int
    clone: Callable[[Any], Any]
    build: Callable[[], Any]
    paths: tuple[str, ...]


MUTANTS: dict[str, Mutant] = {}
OUTPUT = "model(inputs, inference).output 0"
LAST_CALL = "model._nodes_by_depth[0][0]"


def mutant(lesson, build, *paths):
    """Registers the class or function below as a mutant."""

    def register(clone):
        made = clone() if isinstance(clone, type) else clone
        MUTANTS[clone.__name__] = Mutant(lesson, made, build, paths)
        return clone

    return register


# --- 1: masks zipped against fewer outputs --------------------------------------


@mutant(1, models.two_outputs_of_a_lambda, f"{LAST_CALL}.arguments", OUTPUT)
class OutputsZippedWithOneMask(Replay):
    """Notes as many outputs as there are masks; the others are the first one."""

    def note(self, node, outputs):
        self.tensors.update({id(old): outputs[0] for old in node.outputs})


@mutant(
    1, models.two_masks, "number of operations", "model(inputs, inference).output 1"
)
class OneMaskForTwoOutputs(Replay):
    """Lets only the first output have its mask."""

    def call(self, node):
        first, *rest = super().call(node)
        return [first, *(models.Unmasked()(x) for x in rest)]


# --- 2: masks dropped -----------------------------------------------------------


@mutant(2, models.mask_from_a_layer, OUTPUT)
class MasksDropped(Replay):
    """Calls each layer on tensors without masks."""

    def call(self, node):
        return [models.Unmasked()(x) for x in super().call(node)]


@mutant(2, models.two_masks, "_keras_mask")
def symbolic_masks_dropped(model):
    """Makes a right graph, and forgets which of its tensors are masked."""
    twin = regraft.clone(model)
    for tensor in twin.get_layer("twice").output:
        tensor._keras_mask = None
    return twin


# --- 3: masks passed as call arguments ------------------------------------------


@mutant(
    3, models.mask_from_a_layer, f"{LAST_CALL}.arguments.kwargs", "number of operations"
)
class MasksPassedAsArguments(Replay):
    """Makes masks arguments of calls that found their masks by themselves."""

    def arguments(self, node):
        args, kwargs = super().arguments(node)
        if isinstance(node.operation, models.Mean):
            kwargs["mask"] = args[0]._keras_mask
        return args, kwargs


@mutant(3, models.mask_from_a_layer, f"{LAST_CALL}.arguments.kwargs")
def masks_of_the_original(model):
    """Stores the original's mask tensor as an argument of the copy's call."""
    twin = regraft.clone(model)
    [node] = twin.get_layer("mean")._inbound_nodes
    node.arguments.kwargs["mask"] = model.get_layer("embed").output._keras_mask
    return twin


@mutant(3, models.mask_given, f"{LAST_CALL}.arguments.kwargs['mask']")
def given_mask_of_the_original(model):
    """Keeps the original's tensor where the caller gave a mask."""
    twin = regraft.clone(model)
    [old], [new] = (m.get_layer("mean")._inbound_nodes for m in (model, twin))
    new.arguments.kwargs["mask"] = old.arguments.kwargs["mask"]
    return twin


# --- 4: masks gated on `supports_masking` ---------------------------------------


@mutant(4, models.mask_out_of_a_nested_model, OUTPUT)
class MasksGated(Replay):
    """Hands masks on only from layers that say they support masking."""

    def call(self, node):
        outputs = super().call(node)
        gated = not getattr(node.operation, "supports_masking", True)
        return [models.Unmasked()(x) for x in outputs] if gated else outputs


# --- 5: the original's layer used where its copy belongs ------------------------


@mutant(5, models.stack, "model/first")
class OriginalsLayer(Replay):
    """Calls one of the original's own layers."""

    def operation(self, node):
        first = node.operation.name == "first"
        return node.operation if first else super().operation(node)


@mutant(5, models.stack, "model/first", "model/second")
class OriginalsLayers(Replay):
    """Calls all of the original's own layers."""

    def operation(self, node):
        return node.operation


@mutant(5, models.stack, "model/second/kernel")
def originals_weights(model):
    """Has layers of its own on variables of the original."""
    return regraft.clone(model, weights="share")


# --- 6: wrong order, or too few calls -------------------------------------------


@mutant(6, models.stack, "model/first.name", "model/second.name", OUTPUT)
class LayersSwapped(Replay):
    """Calls the second layer first."""

    def operation(self, node):
        other = {"first": "second", "second": "first"}[node.operation.name]
        return self.copies[id(self.model.get_layer(other))]


@mutant(6, models.shared, "model/a.name", "_inputs_struct[0]", OUTPUT)
class ArgumentsReversed(Replay):
    """Hands a layer its inputs in the wrong order."""

    def arguments(self, node):
        args, kwargs = super().arguments(node)
        if node.operation.name == "minus":
            args = (args[0][::-1],)
        return args, kwargs


@mutant(6, models.shared, "_nodes_by_depth", OUTPUT)
class CalledOnce(Replay):
    """Calls a layer once that was called twice."""

    def __call__(self, model):
        self.results = {}
        return super().__call__(model)

    def call(self, node):
        key = id(node.operation)
        if key not in self.results:
            self.results[key] = super().call(node)
        return self.results[key]


# --- 7: an input that lost something --------------------------------------------


@mutant(7, models.stack, "model/x.name")
class InputNameLost(Replay):
    def input_arguments(self, tensor):
        return {**super().input_arguments(tensor), "name": "other"}


@mutant(7, models.mask_from_a_layer, "model/x", "dtype")
class InputDtypeLost(Replay):
    def input_arguments(self, tensor):
        return {**super().input_arguments(tensor), "dtype": "float32"}


@mutant(7, models.fixed_batch, "model/x", "batch_shape")
class InputBatchSizeLost(Replay):
    def input_arguments(self, tensor):
        shape = (None, *tensor.shape[1:])
        return {**super().input_arguments(tensor), "batch_shape": shape}


@mutant(7, models.sparse, "model/x", "sparse")
class InputSparsityLost(Replay):
    def input_arguments(self, tensor):
        return {**super().input_arguments(tensor), "sparse": False}


@mutant(7, models.optional, "model/b", "optional")
class InputOptionalityLost(Replay):
    def input_arguments(self, tensor):
        return {**super().input_arguments(tensor), "optional": False}


# --- 8: an output missing, or an error for nothing ------------------------------


@mutant(8, models.two_heads, "_outputs", "model(inputs, inference)")
class OutputMissing(Replay):
    """Returns the outputs that it found first."""

    def outputs(self):
        return super().outputs()[:1]


@mutant(8, models.two_heads, "model/one.name", "model/two.name", OUTPUT)
class OutputsSwapped(Replay):
    """Returns the outputs in the order in which it found them."""

    def outputs(self):
        return super().outputs()[::-1]


@mutant(8, models.stack, "model/second.call", "model(inputs, inference)")
def error_for_nothing(model):
    """Computes everything, then says that it could not."""
    twin = regraft.clone(model)
    layer = twin.get_layer("second")
    compute = layer.call

    def call(x):
        if compute(x) is not None:
            raise ValueError("Could not compute output")

    object.__setattr__(layer, "call", call)
    return twin
