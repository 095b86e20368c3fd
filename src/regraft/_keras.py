"""All that regraft knows about Keras's private attributes.

No other module imports `keras.src` or names an attribute with a leading
underscore on a Keras object. When Keras changes, this is the file to read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import keras
import numpy as np
from keras.src.backend.common import global_state
from keras.src.backend.common.masking import get_keras_mask
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.distribution.distribution_lib import Distribution
from keras.src.layers.layer import Layer
from keras.src.metrics.metric import Metric
from keras.src.models.functional import Functional, functional_like_constructor
from keras.src.ops.function import Function
from keras.src.ops.node import KerasHistory, Node
from keras.src.ops.operation import Operation
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.random.seed_generator import make_default_seed
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.trainers.trainer import Trainer
from keras.src.utils.python_utils import is_default
from keras.src.utils.tracking import (
    TrackedDict,
    TrackedList,
    TrackedSet,
    Tracker,
)

KerasTensor = keras.KerasTensor
Model = keras.Model
Sequential = keras.Sequential
Variable = keras.Variable
SeedGenerator = keras.random.SeedGenerator
InputLayer = keras.layers.InputLayer
Initializer = keras.initializers.Initializer

__all__ = [
    "BaseOptimizer",
    "Distribution",
    "Function",
    "Functional",
    "Initializer",
    "InputLayer",
    "KerasHistory",
    "KerasSaveable",
    "KerasTensor",
    "Layer",
    "Metric",
    "Model",
    "Node",
    "Operation",
    "SeedGenerator",
    "Sequential",
    "Tracker",
    "Trainer",
    "Variable",
    "functional_like_constructor",
    "in_stateless_scope",
    "make_default_seed",
]

# Lists of call nodes. They also name calls made by other models, so a copy
# never follows them: it receives the nodes that were reached another way.
NODE_LISTS = ("_inbound_nodes", "_outbound_nodes")

# Losses that the last call added. A call that was traced leaves tensors of the
# trace behind, which mean nothing outside of it.
LOSS_LISTS = ("_losses", "_losses_override")

# What a model made for itself while it ran: compiled functions, iterators, the
# live state of a JAX loop. They belong to the original alone; a copy starts
# with the value given here (absent attributes stay absent).
RUNTIME_STATE: dict[str, Any] = {
    "train_function": None,
    "test_function": None,
    "predict_function": None,
    "_jax_state": None,
    "_jax_state_synced": True,
    "_eval_epoch_iterator": None,
    "_distributed_dataset": None,
}

# What `compile()` set, and what `Trainer.__init__` had put there before.
# `None` as a default means "absent before `compile()`".
_ABSENT = object()
COMPILE_STATE: dict[str, Any] = {
    "optimizer": _ABSENT,
    "loss": None,
    "compiled": False,
    "_compile_loss": None,
    "_compile_metrics": None,
    "_loss_tracker": None,
    "_compile_config": _ABSENT,
    "_compiled_trainable_state": _ABSENT,
    "_jit_compile": None,
    "_run_eagerly": False,
    "steps_per_execution": 1,
    "stop_training": _ABSENT,
    "history": _ABSENT,
}

# Objects that describe the surroundings of a model (meshes, layouts,
# strategies) rather than the model: shared, never copied.
SURROUNDINGS: tuple[type, ...] = (
    keras.distribution.DeviceMesh,
    keras.distribution.TensorLayout,
    keras.distribution.LayoutMap,
    keras.distribution.DataParallel,
    keras.distribution.ModelParallel,
)


def is_surroundings(kind: type) -> bool:
    """Tells whether instances of a class are shared because they are not the model.

    A dtype policy cannot change; a map of policies by layer can.
    """
    if issubclass(kind, keras.dtype_policies.DTypePolicy):
        return not issubclass(kind, keras.dtype_policies.DTypePolicyMap)
    return issubclass(kind, SURROUNDINGS)


def drop_compile_state(attributes: dict[str, Any]) -> None:
    """Turns a trainer's attribute dict back to what it was before `compile()`."""
    for name, before in COMPILE_STATE.items():
        if name not in attributes:
            continue
        if before is _ABSENT:
            del attributes[name]
        else:
            attributes[name] = before


# --- graph -------------------------------------------------------------------


def history(tensor: Any) -> Any:
    """Returns `(operation, node_index, tensor_index)` of a symbolic tensor."""
    return getattr(tensor, "_keras_history", None)


def producer(tensor: Any) -> Any:
    """Returns the node that produced a symbolic tensor, if it is known."""
    made_by = history(tensor)
    if made_by is None or made_by.operation is None:
        return None
    nodes = made_by.operation._inbound_nodes
    return nodes[made_by.node_index] if made_by.node_index < len(nodes) else None


def own_nodes(function: Any) -> Iterator[Any]:
    """Yields the call nodes of a `Function` or Functional model, inputs first."""
    by_depth = function._nodes_by_depth
    for depth in sorted(by_depth, reverse=True):
        yield from by_depth[depth]


def copy_node(node: Any, new: Any, copy_of: Any) -> None:
    """Gives a call node the copies of its operation, arguments and outputs.

    What a node holds belongs to it alone, so its lists need no memo.
    """
    state, arguments = vars(new), vars(node.arguments)
    state.update(vars(node))
    state["operation"] = copy_of(node.operation)
    state["outputs"] = [copy_of(tensor) for tensor in node.outputs]
    state["arguments"] = made = object.__new__(type(node.arguments))
    target = vars(made)
    for name, value in arguments.items():
        is_list = type(value) is list
        target[name] = list(map(copy_of, value)) if is_list else copy_of(value)


def append_call(node: Any) -> int:
    """Lists a call on the operation that was called, and returns its number."""
    nodes = node.operation._inbound_nodes
    nodes.append(node)
    return len(nodes) - 1


def is_graph(obj: Any) -> bool:
    """Tells whether an object owns a graph of call nodes."""
    return isinstance(obj, Function) and "_nodes_by_depth" in vars(obj)


def node_key(node: Any, index: int) -> str:
    """Returns the key under which a `Function` lists one of its nodes."""
    return f"{id(node.operation)}_ib-{index}"


def inner_graph(model: Any) -> Any:
    """Returns the Functional behind a model (itself, a Sequential's), or None."""
    if is_graph(model):
        return model
    inner = getattr(model, "_functional", None)  # On torch not in `vars(model)`.
    return inner if inner is not None and is_graph(inner) else None


# --- layers ------------------------------------------------------------------


def sublayers(layer: Any) -> list[Any]:
    """Returns the layers tracked by a layer, in the order it tracks them."""
    return list(layer._layers)


def all_layers(layer: Any) -> list[Any]:
    """Returns a layer and everything below it, each once, without recursing."""
    found: dict[int, Any] = {}
    stack = [layer]
    while stack:
        current = stack.pop()
        if id(current) in found:
            continue
        found[id(current)] = current
        children = sublayers(current)
        graph = inner_graph(current)
        if graph is not None:
            children += [op for op in graph._operations if isinstance(op, Layer)]
            if graph is not current:
                children.append(graph)
        stack.extend(reversed(children))
    return list(found.values())


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
            if not _NAMES.issuperset(map(type, container)):
                continue
            if kind is TrackedDict and not _FLAGS.issuperset(
                map(type, container.values())
            ):
                continue
            _TRACKED[kind](new, container)
        memo[id(container)] = new
        new.__dict__["tracker"] = new_tracker
    return hollow


_NAMES, _FLAGS = frozenset({str}), frozenset({bool})

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


def own_variables(layer: Any) -> list[Any]:
    """Returns the variables that a layer tracks itself, as it would save them."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def compile_metrics(trainer: Any) -> list[Any]:
    """Returns the metrics and loss trackers that `compile()` made."""
    found = [trainer._loss_tracker, trainer._compile_metrics]
    if trainer._compile_loss is not None:
        found += trainer._compile_loss.metrics
    return [metric for metric in found if metric is not None]


def build_shapes(layer: Any) -> dict[str, Any] | None:
    """Returns the arguments that a layer's `build()` was called with."""
    shapes = vars(layer).get("_build_shapes_dict")
    return None if shapes is None else dict(shapes)


def jax_sync(trainer: Any) -> None:
    """Makes a JAX trainer in the middle of `fit` put its state on the variables."""
    sync = getattr(trainer, "jax_state_sync", None)
    if sync is not None and not vars(trainer).get("_jax_state_synced", True):
        sync()


# --- variables ---------------------------------------------------------------


def raw_value(variable: Any) -> Any:
    """Returns what a variable holds, without scopes and casts."""
    return vars(variable).get("_value")


def has_value(variable: Any) -> bool:
    """Tells whether a variable holds a value or the means to make one."""
    state = vars(variable)
    return state.get("_value") is not None or state.get("_initializer") is not None


# --- global state that a copy must leave as it found it ------------------------


class quiet_globals:
    """A context in which Keras's name counters and global RNG stay unchanged."""

    _NAMES = ("object_name_uids", "global_seed_generator", "autoname_prefix")

    def __enter__(self) -> quiet_globals:
        self._saved = {n: global_state.get_global_attribute(n) for n in self._NAMES}
        counters = self._saved["object_name_uids"]
        if counters is not None:
            working = type(counters)(counters.default_factory, counters)
            global_state.set_global_attribute("object_name_uids", working)
        return self

    def __exit__(self, *_: object) -> None:
        for name, value in self._saved.items():
            global_state.set_global_attribute(name, value)


def set_global_seed_generator(generator: Any) -> None:
    """Puts a generator where unseeded random ops look for one."""
    global_state.set_global_attribute("global_seed_generator", generator)


def rebuild_optimizer(optimizers: Iterable[Any]) -> None:
    """Gives each optimizer the state it had when it was first built."""
    optimizers = list(optimizers)
    was_built = [
        (opt, list(opt._trainable_variables)) for opt in optimizers if opt.built
    ]
    for opt, _ in was_built:
        kept = [opt._iterations]
        if isinstance(opt._learning_rate, Variable):
            kept.append(opt._learning_rate)
        tracker = opt._tracker
        tracker.unlock()
        for name, (_, store) in tracker.config.items():
            store[:] = kept
            tracker.stored_ids[name] = {id(v) for v in kept}
        opt._trainable_variables_indices.clear()
        opt.built = False
    for opt, variables in was_built:
        opt._iterations.assign(0)
        if not opt.built:  # A wrapped optimizer is built by the one around it.
            opt.build(variables)


def reindex_optimizer(new: Any, variables: Iterable[tuple[Any, Any]]) -> None:
    """Rewrites the dicts by which an optimizer finds what belongs to a variable.

    Their keys are identities: on TensorFlow, names of the variables' resources,
    which are known only when these have been made.

    Args:
        new: The copy of an optimizer.
        variables: All variables of the model, each with its copy.
    """
    pairs = ((_key(new, old), _key(new, twin)) for old, twin in variables)
    keys = {old: twin for old, twin in pairs if old is not None and twin is not None}
    for indices in vars(new).values():
        plain = getattr(indices, "__wrapped__", indices)
        if not isinstance(plain, dict) or not any(key in keys for key in plain):
            continue
        items = [(keys.get(key, key), value) for key, value in plain.items()]
        dict.clear(plain)  # Past the tracking of a dict that Keras wraps.
        dict.update(plain, items)
        if plain is not indices:
            indices._update_snapshot()


def set_history(new: Any, tensor: Any, node: Any, index: int) -> None:
    """Says which call of which operation produced a copied tensor."""
    position = tensor._keras_history.tensor_index
    operation = None if node is None else node.operation
    if operation is None:
        index, position = 0, 0  # As Keras marks a tensor from outside a graph.
    vars(new)["_keras_history"] = KerasHistory(operation, index, position)


def set_node_keys(graph: Any, index: dict[int, int]) -> None:
    """Writes the keys under which a graph lists its nodes."""
    keys = {node_key(node, index[id(node)]) for node in own_nodes(graph)}
    vars(graph)["_nodes"] = keys


def set_raw_value(variable: Any, value: Any) -> None:
    """Puts a value into a variable, past scopes and casts."""
    vars(variable)["_value"] = value


def set_layout(variable: Any, layout: Any) -> None:
    """Says how a variable is to be laid out over a mesh; None for not at all."""
    vars(variable)["_layout"] = layout


def layout_of(distribution: Any, variable: Any) -> Any:
    """Returns the layout that a distribution has for a variable, by its path."""
    set_layout(variable, None)  # Otherwise it answers with the one it has.
    return distribution.get_variable_layout(variable)


def slots_with_variables(optimizer: Any) -> Iterator[tuple[Any, Any]]:
    """Yields what an optimizer keeps for a variable, with the variable.

    The name of a slot begins with the path of its variable.
    """
    starts = {v.path.replace("/", "_"): v for v in optimizer._trainable_variables}
    for slot in slots(optimizer):
        owners = [
            start
            for start, variable in starts.items()
            if slot.name.startswith(start) and slot.shape == variable.shape
        ]
        if owners:
            yield slot, starts[max(owners, key=len)]


def backend_name() -> str:
    """Returns the name of the active backend."""
    return str(keras.backend.backend())


def variable_state(variable: Any) -> dict[str, Any]:
    """Returns a variable's attributes without its value."""
    state = vars(variable).copy()
    state["_value"] = None
    return state


def tensor_state(tensor: Any) -> dict[str, Any]:
    """Returns a symbolic tensor's attributes without its history."""
    state = vars(tensor).copy()
    state.pop("_keras_history", None)
    return state


def foreign_inputs(graph: Any) -> list[Any]:
    """Returns the inputs of a graph that other operations than its own produce."""
    own = {id(node) for node in own_nodes(graph)}
    return [t for t in graph._inputs if id(producer(t)) not in own]


# --- names -------------------------------------------------------------------


def set_name(operation: Any, name: str) -> None:
    """Renames an operation and, for an input, the symbolic tensor it stands for."""
    if isinstance(operation, InputLayer):
        for node in operation._inbound_nodes:
            for tensor in node.outputs:
                if tensor.name == operation.name:
                    tensor.name = name
    vars(operation)["name"] = name


def path_of_layer(operation: Any) -> str:
    """Returns the path under which a layer was built, or nothing."""
    return vars(operation).get("_path") or ""


def move_paths(operation: Any, moved: Any) -> None:
    """Rewrites the paths that a layer remembers."""
    state = vars(operation)
    for attribute in ("_path", "_parent_path"):
        if state.get(attribute):
            state[attribute] = moved(state[attribute])


def set_path(variable: Any, path: str) -> None:
    """Gives a variable another path."""
    vars(variable)["_path"] = path


def rename_slots(optimizer: Any, names: dict[str, str]) -> None:
    """Follows renamed variables in the names of an optimizer's slots."""
    for slot in optimizer._variables:
        owners = [old for old in names if slot.name.startswith(f"{old}_")]
        if owners:
            old = max(owners, key=len)
            name = names[old] + slot.name[len(old) :]
            state = vars(slot)
            state["_path"] = state["_path"].removesuffix(slot.name) + name
            state["_name"] = name


def rename_outputs(trainer: Any, names: dict[str, str]) -> None:
    """Follows renamed outputs in all that `compile()` keyed by output names."""
    state = vars(trainer)
    output_names = state.get("output_names")
    if not output_names:
        return
    changed = {old: names[old] for old in output_names if old in names}
    if not changed:
        return
    output_names[:] = [changed.get(old, old) for old in output_names]
    holders = [trainer, state.get("_compile_loss"), state.get("_compile_metrics")]
    config = state.get("_compile_config")
    holders.append(getattr(config, "config", None))
    for holder in holders:
        if holder is None:
            continue
        own = holder if isinstance(holder, dict) else vars(holder)
        for attribute in _KEYED_BY_OUTPUT & own.keys():
            own[attribute] = _rename_keys(own[attribute], changed)


_KEYED_BY_OUTPUT = frozenset(
    {
        "loss",
        "loss_weights",
        "metrics",
        "weighted_metrics",
        "output_names",
        "_user_loss",
        "_user_loss_weights",
        "_user_metrics",
        "_user_weighted_metrics",
    }
)


def _rename_keys(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        items = [(names.get(k, k), v) for k, v in value.items()]
        value.clear()
        for key, item in items:
            value[key] = item
        return value
    if isinstance(value, list) and all(isinstance(x, str) for x in value):
        return [names.get(x, x) for x in value]
    return value


def retrack(operation: Any) -> None:
    """Lets torch's parameter dicts follow renamed variables."""
    if "_torch_params" in vars(operation).get("_modules", ()):
        operation._track_variables()


# --- drawing weights anew ----------------------------------------------------


def reseed_initializer(initializer: Any, seed: int, *, also_fixed: bool) -> None:
    """Makes an initializer draw other numbers than it drew before.

    Keras gives an initializer without a seed one of its own when it is made,
    so calling it twice draws the same numbers. One that was given a fixed seed
    draws the same numbers on purpose, unless the caller asks otherwise.
    """
    state = vars(initializer)
    if type(state.get("seed")) is not int:
        return
    was_fixed = state.get("_init_seed", state["seed"]) is not None
    if was_fixed and not also_fixed:
        return
    state["seed"] = seed
    if was_fixed and "_init_seed" in state:
        state["_init_seed"] = seed


def reseed_generator(generator: Any, seed: int | None) -> None:
    """Starts a random stream anew; without a seed, as its constructor would."""
    if seed is None:
        seed = generator._initial_seed
        if seed is None:
            seed = make_default_seed()
    elif generator._initial_seed is not None:
        generator._initial_seed = seed
    generator.state.assign(
        keras.ops.convert_to_tensor([seed, 0], generator.state.dtype)
    )


def forget_variables(layer: Any) -> None:
    """Brings a layer back to where `build()` may be called again."""
    tracker = layer._tracker
    tracker.unlock()
    for name in ("trainable_variables", "non_trainable_variables"):
        tracker.config[name][1].clear()
        tracker.stored_ids[name].clear()
    state = vars(layer)
    state["built"] = False
    if state.get("lora_enabled"):
        state["lora_enabled"] = False  # `build()` enables it again.
    modules = state.get("_modules")
    if modules is not None:  # torch: parameters are tracked again after `build()`.
        modules.pop("_torch_params", None)


def has_trusted_config(layer: Any) -> bool:
    """Tells whether `get_config()` describes what the constructor was given.

    A subclassed model without a `get_config` of its own reports the defaults of
    its constructor's arguments, whatever it was really given.
    """
    if isinstance(layer, Model) and is_default(layer.get_config):
        code = type(layer).__init__.__code__
        takes_arguments = code.co_argcount + code.co_kwonlyargcount > 1
        return not takes_arguments
    return True


# --- comparing ---------------------------------------------------------------


def is_automatic_tensor_name(name: str) -> bool:
    """Tells whether a counter gave a symbolic tensor its name."""
    return name.startswith("keras_tensor")


def is_identity_key(key: Any) -> bool:
    """Tells whether a key is the address of an object, which no copy can keep."""
    return type(key) is int and key > 1 << 32


# By which TensorFlow's checkpoints find the parts of an object.
_CHECKPOINT_REFERENCES = frozenset(
    {
        "_self_setattr_tracking",
        "_self_unconditional_checkpoint_dependencies",
        "_self_unconditional_dependency_names",
        "_self_unconditional_deferred_dependencies",
        "_self_update_uid",
        "_self_name_based_restores",
        "_self_saveable_object_factories",
    }
)


def forget_bookkeeping(obj: Any, state: dict[str, Any]) -> None:
    """Removes attributes that say nothing about what a model is or does."""
    if isinstance(obj, Operation):
        for name in (*NODE_LISTS, *LOSS_LISTS, *RUNTIME_STATE):
            state.pop(name, None)
        if is_graph(obj):
            state.pop("_nodes", None)
        for name in ("_call_signature", "_tracker", "_auto_config", "_called"):
            state.pop(name, None)
    if isinstance(obj, BaseOptimizer):
        _key_by_position(obj, state)
    if isinstance(obj, Initializer) and state.get("_init_seed", 0) is None:
        state.pop("seed", None)  # Drawn when the initializer was made.
    for name in _CHECKPOINT_REFERENCES & state.keys():
        del state[name]


def _key_by_position(optimizer: Any, state: dict[str, Any]) -> None:
    """Writes numbers of variables for their identities, which no copy can keep."""
    keys = [_key(optimizer, v) for v in optimizer._trainable_variables]
    positions = {key: i for i, key in enumerate(keys) if key is not None}
    for name, indices in state.items():
        plain = getattr(indices, "__wrapped__", indices)
        if isinstance(plain, dict) and plain and all(k in positions for k in plain):
            state[name] = {f"variable {positions[k]}": v for k, v in plain.items()}


def _key(optimizer: Any, variable: Any) -> Any:
    """Returns what an optimizer knows a variable by; None if it has no value yet."""
    if raw_value(variable) is None:
        return None
    try:
        return optimizer._var_key(variable)
    except AttributeError:  # TensorFlow: a plain tensor was put in a variable's place.
        return None


def to_numpy(value: Any) -> Any:
    """Returns a tensor or array as a numpy array, bit for bit."""
    return np.asarray(keras.ops.convert_to_numpy(value))


def mask_of(tensor: Any) -> Any:
    """Returns the mask that travels with a tensor, or None."""
    return get_keras_mask(tensor)


def input_specs(model: Any) -> Any:
    """Returns what a model expects as input: a structure of symbolic tensors."""
    graph = inner_graph(model) if isinstance(model, Operation) else None
    if graph is not None:
        return graph._inputs_struct
    shapes = build_shapes(model) if isinstance(model, Layer) else None
    if shapes is None or len(shapes) != 1:
        return None
    shape = next(iter(shapes.values()))
    if isinstance(shape, tuple) and all(isinstance(n, int | None) for n in shape):
        dtype = getattr(model, "input_dtype", None) or "float32"
        return KerasTensor(shape, dtype=dtype) if shape else None
    return None


def is_optional(spec: Any) -> bool:
    """Tells whether an input may be left out."""
    made_by = history(spec)
    return bool(made_by and getattr(made_by.operation, "optional", False))


# --- replaying a graph -------------------------------------------------------


def added_arguments(node: Any) -> set[str]:
    """Returns the arguments of a call that its layer added by itself.

    A layer looks for the masks of its inputs and for the default of `training`,
    and may note them in the node as if they had been passed (in Keras, steps 5
    and 6 of `Layer.__call__`; a call with one tensor and nothing else does).
    """
    layer = node.operation
    if not isinstance(layer, Layer):
        return set()
    args, kwargs = node.arguments.args, node.arguments.kwargs
    parameters = layer._call_signature.parameters
    bound = {**dict(zip(parameters, args, strict=False)), **kwargs}
    added = set()
    for name, value in kwargs.items():
        others = {k: v for k, v in bound.items() if k != name and has_tensors(v)}
        if name == "mask" and len(others) == 1:
            [source] = others.values()
        elif name.removesuffix("_mask") in others:
            source = others[name.removesuffix("_mask")]
        else:
            continue
        masks = [get_keras_mask(x) for x in keras.tree.flatten(source)]
        passed = keras.tree.flatten(value)
        if [id(mask) for mask in masks] == [id(mask) for mask in passed]:
            added.add(name)
    if len(args) == 1 and ("mask" in added or "mask" not in parameters):
        for name in layer._call_context_args & kwargs.keys():
            if name in parameters and kwargs[name] is parameters[name].default:
                added.add(name)
    return added


def has_tensors(value: Any) -> bool:
    """Tells whether an argument of a call holds symbolic tensors."""
    return any(isinstance(x, KerasTensor) for x in keras.tree.flatten(value))


def call_arguments(node: Any) -> tuple[Any, dict[str, Any]]:
    """Returns what a node's operation was called with, and nothing it added."""
    args, kwargs = node.arguments.args, node.arguments.kwargs
    added = added_arguments(node)
    return args, {k: v for k, v in kwargs.items() if k not in added}


def argument_tensors(node: Any) -> list[Any]:
    """Returns the symbolic tensors that a node's operation was called with."""
    flat = keras.tree.flatten(call_arguments(node))
    return [x for x in flat if isinstance(x, KerasTensor)]


def call_order(graph: Any) -> list[Any]:
    """Returns the calls that make a graph's outputs, in an order that works.

    A node comes after those that its arguments come from and after the earlier
    calls of the same operation, as when the graph was first made. Operations
    that only compute masks for layers to find are left out.
    """
    mine = {id(node): node for node in own_nodes(graph)}
    before: dict[int, Any] = {}
    for operation in graph.operations:
        calls = [node for node in operation._inbound_nodes if id(node) in mine]
        before.update({id(b): a for a, b in itertools.pairwise(calls)})
    order: dict[int, Any] = {}
    starts = [node for node in mine.values() if node.is_input]
    for start in [*starts, *map(producer, graph._outputs)]:
        stack = [start] if id(start) in mine else []
        while stack:
            node = stack[-1]
            needs = [producer(x) for x in argument_tensors(node)]
            needs.append(before.get(id(node)))
            needs = [n for n in needs if id(n) in mine and id(n) not in order]
            if needs:
                stack.extend(reversed(needs))
            else:
                order[id(node)] = node
                stack.pop()
    return list(order.values())


def call_chain(graph: Any) -> list[Any] | None:
    """Returns the layers of a graph that is a mere sequence of them, or None."""
    operations, last = [], None
    for node in call_order(graph):
        args, kwargs = call_arguments(node)
        is_plain = len(args) == 1 and not kwargs
        if last is not None and not (is_plain and args[0] is last):
            return None
        if not isinstance(node.operation, Layer) or len(node.outputs) != 1:
            return None
        operations.append(node.operation)
        last = node.outputs[0]
    is_whole = len(graph._outputs) == 1 and graph._outputs[0] is last
    return operations if is_whole and len(graph._inputs) == 1 else None


def operations_behind(tensors: Iterable[Any]) -> list[Any]:
    """Returns the operations that symbolic tensors come from, each once."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    stack = [producer(tensor) for tensor in tensors]
    while stack:
        node = stack.pop()
        if node is not None and id(node) not in seen:
            seen.add(id(node))
            found[id(node.operation)] = node.operation
            stack += map(producer, node.input_tensors)
    return list(found.values())


def input_layer_of(tensor: Any) -> Any:
    """Returns the `InputLayer` that a symbolic tensor stands for, or None."""
    node = producer(tensor)
    found = None if node is None else node.operation
    return found if isinstance(found, InputLayer) else None


def graph_fields(graph: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """Yields what a graph is stored in, next to the same of another graph."""
    for name in (
        "_inputs",
        "_outputs",
        "_inputs_struct",
        "_outputs_struct",
        "_nodes_by_depth",
        "_operations",
        "_operations_by_depth",
    ):
        yield vars(graph)[name], vars(new)[name]


def derived_state(layer: Any) -> list[Any]:
    """Returns what a layer keeps about its sublayers and can work out again.

    That is torch's dict of parameters, what `compile()` noted about which layers
    are trainable, and graphs that a Sequential has given up. A copy has None in
    their place, until `derive_state` writes them again.
    """
    state = vars(layer)
    found = [state.get("_modules", {}).get("_torch_params")]
    found.append(state.get("_compiled_trainable_state"))
    if isinstance(layer, Sequential):  # Its graphs, also from before an `add()`.
        found += [x for x in _tracked(layer) if isinstance(x, Functional)]
        inside = {id(x) for x in layer._layers} | {id(layer._functional)}
        found = [x for x in found if id(x) not in inside]
    return [obj for obj in found if obj is not None]


def _tracked(layer: Any) -> list[Any]:
    return layer._tracker.config["layers"][1]


def derive_state(layer: Any) -> None:
    """Writes what `derived_state` lists anew, where the layer had it."""
    if isinstance(layer, Sequential):
        _tracked(layer)[:] = [x for x in _tracked(layer) if x is not None]
        layer._tracker.stored_ids["layers"].discard(id(None))
    retrack(layer)
    if "_compiled_trainable_state" in vars(layer):
        inside = layer._flatten_layers()
        layer._compiled_trainable_state = {part: part.trainable for part in inside}


def adopt_nodes(graph: Any) -> None:
    """Lets operations that a copied graph did not bring along list its nodes."""
    index: dict[int, int] = {}
    for node in own_nodes(graph):
        listed = node.operation._inbound_nodes
        if not any(other is node for other in listed):
            listed.append(node)
            for i, tensor in enumerate(node.outputs):
                position = KerasHistory(node.operation, len(listed) - 1, i)
                vars(tensor)["_keras_history"] = position
        index[id(node)] = next(i for i, n in enumerate(listed) if n is node)
    set_node_keys(graph, index)


def track_graph_layers(model: Any, replaced: set[int]) -> None:
    """Lets a Functional model track its graph's layers, and others after them.

    Args:
        model: The model.
        replaced: The ids of layers that are tracked only as parts of the graph.
    """
    tracked, inside = model._layers, model.layers
    known = {id(layer) for layer in inside}
    rest = [x for x in tracked if id(x) not in known and id(x) not in replaced]
    if {id(x) for x in tracked} != known | {id(x) for x in rest}:
        tracked[:] = [*inside, *rest]
        ids = model._tracker.stored_ids["layers"]
        ids.clear()
        ids.update(id(layer) for layer in tracked)


def sequence_of(model: Any) -> list[Any]:
    """Returns the layers of a Sequential, with its `InputLayer` if it has one."""
    return list(model._layers)


def set_sequence(model: Any, layers: list[Any], graph: Any) -> None:
    """Gives a Sequential its layers and the Functional model behind them."""
    if [id(x) for x in model._layers] != [id(x) for x in layers]:
        model._layers = list(layers)
    if model._functional is not graph:
        model._functional = graph
    model.built = True


def has_left_variables(optimizer: Any, new: Any) -> bool:
    """Tells whether a copied optimizer works on none of the original's variables."""
    old = {id(variable) for variable in optimizer._trainable_variables}
    return not any(id(variable) in old for variable in new._trainable_variables)


def unbuild_optimizer(optimizer: Any) -> None:
    """Brings an optimizer back to where it knows no variables."""
    kept = [optimizer._iterations]
    if isinstance(optimizer._learning_rate, Variable):
        kept.append(optimizer._learning_rate)
    tracker = optimizer._tracker
    tracker.unlock()
    for name, (_, store) in tracker.config.items():
        store[:] = kept
        tracker.stored_ids[name] = {id(v) for v in kept}
    optimizer._trainable_variables_indices.clear()
    optimizer._trainable_variables = []
    optimizer._iterations.assign(0)
    optimizer.built = False


def slots(optimizer: Any) -> list[Any]:
    """Returns the variables that an optimizer made for those it works on."""
    kept = {id(optimizer._iterations), id(optimizer._learning_rate)}
    return [v for v in optimizer._variables if id(v) not in kept]


def forget_calls(operation: Any) -> None:
    """Removes the nodes of calls whose results nobody has."""
    for name in NODE_LISTS:
        vars(operation)[name] = []


with quiet_globals():
    _WRAPPERS = _wrapper_codes()
