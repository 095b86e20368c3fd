"""What layers and models hold, and what they can work out again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import keras
from keras.src.layers.input_spec import InputSpec
from keras.src.layers.layer import Layer
from keras.src.models.functional import Functional
from keras.src.ops.operation import Operation
from keras.src.utils.python_utils import is_default
from keras.src.utils.tracking import DotNotTrackScope

from .._identity import address
from .classes import KerasTensor, Sequential, Variable
from .graph import history, inner_graph, own_nodes
from .trees import leaves
from .variables import kind_of, own_name, raw_value

# Losses that the last call added. A call that was traced leaves tensors of the
# trace behind, which mean nothing outside of it.
LOSS_LISTS = ("_losses", "_losses_override")


def sublayers(layer: Any) -> list[Any]:
    """Returns the layers tracked by a layer, in the order it tracks them."""
    return list(layer._layers)


def held_streams_and_metrics(layer: Any) -> list[Any]:
    """Returns the random streams and metrics that a layer tracks, apart from layers."""
    stores = layer._tracker.config
    return [x for name in ("seed_generators", "metrics") for x in stores[name][1]]


def all_layers(layer: Any) -> list[Any]:
    """Returns a layer and everything below it, each once, without recursing.

    Those of a graph come in the order in which Keras calls them.
    """
    found: dict[int, Any] = {}
    stack = [layer]
    while stack:
        current = stack.pop()
        if address(current) in found:
            continue
        found[address(current)] = current
        children = sublayers(current)
        graph = inner_graph(current)
        if graph is not None:
            called = [node.operation for node in own_nodes(graph)]
            children = [op for op in called if isinstance(op, Layer)] + children
            if graph is not current:
                children.append(graph)
        stack.extend(reversed(children))
    return list(found.values())


def own_variables(layer: Any) -> list[Any]:
    """Returns the variables that a layer tracks itself, as it would save them."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def learned_by_adapt(layer: Any) -> list[Any]:
    """Returns the variables whose values are data that a layer has seen.

    A method of that name may also train the weights of its layer.
    """
    own = own_variables(layer) if hasattr(layer, "adapt") else []
    return [variable for variable in own if not variable.trainable]


def parts_alike(layer: Any, new: Any) -> list[tuple[Any, Any]]:
    """Returns the layers and variables in a layer, each with that in one like it.

    Those of a kind are left out of which both do not have as many.
    """
    pairs: list[tuple[Any, Any]] = []
    layers, others = all_layers(layer), all_layers(new)
    if [type(x) for x in layers] == [type(x) for x in others]:
        pairs += zip(layers[1:], others[1:], strict=True)
    variables, twins = layer.variables, new.variables
    if len(variables) == len(twins):
        pairs += zip(variables, twins, strict=True)
    return pairs


def held_by_layers(operations: Iterable[Any]) -> set[int]:
    """Returns the ids of the variables that layers track themselves."""
    layers = (operation for operation in operations if isinstance(operation, Layer))
    return {address(v) for layer in layers for v in own_variables(layer)}


def held_beside_layers(owners: Iterable[Any], operations: Iterable[Any]) -> set[int]:
    """Returns the ids of the variables that are no weights: slots, counts, sums.

    Args:
        owners: Optimizers and metrics. They track what they hold, whosever it is.
        operations: The operations of the model.
    """
    return held_by(owners) - held_by_layers(operations)


def held_by(owners: Iterable[Any]) -> set[int]:
    """Returns the ids of the variables that optimizers or metrics track."""
    return {address(v) for owner in owners for v in owner.variables}


def seed_states(layer: Any) -> list[Any]:
    """Returns the variables that say how far the random streams of layers are."""
    return [g.state for below in all_layers(layer) for g in below._seed_generators]


def synchronized_layers(layer: Any) -> list[Any]:
    """Returns the layers that can take their statistics from several replicas."""
    return [below for below in all_layers(layer) if hasattr(below, "synchronized")]


def build_shapes(layer: Any) -> dict[str, Any] | None:
    """Returns the arguments that a layer's `build()` was called with."""
    shapes = vars(layer).get("_build_shapes_dict")
    return None if shapes is None else dict(shapes)


def says_how_to_build(layer: Any) -> bool:
    """Tells whether a layer has a `build()` of its own; a graph's does nothing."""
    return inner_graph(layer) is None and not is_default(layer.build)


def retrack(operation: Any) -> None:
    """Lets torch's dict of a layer's parameters follow the layer's variables.

    It is what `Layer._track_variables` does, past the checks that torch makes each time
    that a module is given a parameter.
    """
    parameters = vars(operation).get("_modules", {}).get("_torch_params")
    if parameters is not None:
        found = {v.path: raw_value(v) for v in operation.variables}
        values = {path: found[path] for path in sorted(found)}  # As torch has them.
        state = vars(parameters)
        state["_keys"] = dict.fromkeys(values)
        state["_parameters"] = type(state["_parameters"])(values)


def set_on_built(layer: Any, name: str, value: Any) -> None:
    """Sets an attribute of a layer, also where it adds or drops what is tracked."""
    tracker = layer._tracker
    was_locked, before = tracker.locked, getattr(layer, name, None)
    tracker.unlock()
    try:
        if isinstance(before, Variable):
            layer._untrack_variable(before)
        setattr(layer, name, value)
    finally:
        if was_locked:
            tracker.lock()


def set_trainable_alone(layer: Any) -> None:
    """Says that a layer is trained; its variables, and layers inside, stay."""
    vars(layer)["_trainable"] = True


def forget_variables(layer: Any) -> None:
    """Brings a layer back to where `build()` may be called again."""
    tracker = layer._tracker
    tracker.unlock()
    for name in ("trainable_variables", "non_trainable_variables"):
        tracker.config[name][1].clear()
        tracker.stored_ids[name].clear()
    state = vars(layer)
    if inner_graph(layer) is None:  # A graph stays; the layers in it are built again.
        state["built"] = False
    if state.get("lora_enabled"):
        state["lora_enabled"] = False  # `build()` enables it again.
    if state.get("_input_spec") is not None:
        wanted = keras.tree.map_structure(_any_size, state["_input_spec"])
        state["_input_spec"] = wanted
    modules = state.get("_modules")
    if modules is not None:  # torch: parameters are tracked again after `build()`.
        modules.pop("_torch_params", None)
    given = state.get("_auto_config")
    for name, argument in given.config.items() if given is not None else ():
        if isinstance(state.get(name), Variable):  # It has taken the argument's name.
            state[name] = argument


def forget_attributes(
    layer: Any, variables: list[Any], empty: Iterable[str] = ()
) -> None:
    """Sets the attributes of a layer to None that hold nothing but these variables.

    Args:
        layer: The layer.
        variables: The variables.
        empty: The names of attributes that may as well hold nothing at all.
    """
    known, may_be_empty = {address(v) for v in variables}, set(empty)
    state = vars(layer)
    for name, value in state.items():
        held = leaves(value)
        is_empty = name in may_be_empty and isinstance(value, dict | list) and not value
        if is_empty or (held and all(address(x) in known for x in held)):
            state[name] = None


def reuse_variables(layer: Any, variables: list[Any]) -> None:
    """Lets `add_weight()` return a given variable where it would make one like it."""
    add_weight, free = layer.add_weight, list(variables)

    def add_or_reuse(*args: Any, **kwargs: Any) -> Any:
        made = add_weight(*args, **kwargs)
        wanted = own_name(made), kind_of(made)
        match = next((v for v in free if (own_name(v), kind_of(v)) == wanted), None)
        if match is None:
            return made
        free[:] = [v for v in free if v is not match]
        tracker = layer._tracker
        for name in ("trainable_variables", "non_trainable_variables"):
            store, ids = tracker.config[name][1], tracker.stored_ids[name]
            if id(made) in ids:
                store[:] = [match if v is made else v for v in store]
                ids.discard(id(made))
                ids.add(id(match))
        return match

    vars(layer)["add_weight"] = add_or_reuse


def stop_reusing(layer: Any) -> None:
    """Ends what `reuse_variables` began."""
    vars(layer).pop("add_weight", None)


def _any_size(spec: Any) -> Any:
    """Returns what a layer demands of its input without the sizes it was built for."""
    if not isinstance(spec, InputSpec):
        return spec
    ndim = spec.ndim if spec.shape is None else len(spec.shape)
    return InputSpec(
        dtype=spec.dtype, ndim=ndim, min_ndim=spec.min_ndim, max_ndim=spec.max_ndim
    )


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


def derived_state(layer: Any) -> list[tuple[Any, Any]]:
    """Returns what a layer keeps about its sublayers and can work out again.

    That is what torch's dict of parameters holds, what `compile()` noted about which
    layers are trainable, and graphs that a Sequential has given up. Each comes with
    what a copy has in its place, until `derive_state` writes it again.
    """
    state = vars(layer)
    found = [state.get("_compiled_trainable_state")]
    if isinstance(layer, Sequential):  # Its graphs, also from before an `add()`.
        found += [x for x in _tracked(layer) if isinstance(x, Functional)]
        inside = {address(x) for x in layer._layers} | {address(layer._functional)}
        found = [x for x in found if address(x) not in inside]
    pairs: list[tuple[Any, Any]] = [(obj, None) for obj in found if obj is not None]
    parameters = state.get("_modules", {}).get("_torch_params")
    if parameters is not None:
        held = [vars(parameters)[name] for name in ("_keys", "_parameters")]
        pairs += [(content, type(content)()) for content in held]
    return pairs


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
        state = {part: part.trainable for part in inside}
        with DotNotTrackScope():  # As `compile()` sets it.
            layer._compiled_trainable_state = state


def track_graph_layers(model: Any, replaced: set[int]) -> None:
    """Lets a Functional model track its graph's layers, and others after them.

    Args:
        model: The model.
        replaced: The ids of layers that are tracked only as parts of the graph.
    """
    tracked, inside = model._layers, model.layers
    known = {address(layer) for layer in inside}
    rest = [
        x for x in tracked if address(x) not in known and address(x) not in replaced
    ]
    if {address(x) for x in tracked} != known | {address(x) for x in rest}:
        tracked[:] = [*inside, *rest]
        ids = model._tracker.stored_ids["layers"]
        ids.clear()
        ids.update(id(layer) for layer in tracked)


def resemble(graph: Any, old: Any) -> None:
    """Gives the Functional model behind a Sequential the names of another one."""
    mine, theirs = vars(graph), vars(old)
    for name in ("name", "_path", "_parent_path", "training"):
        if name in theirs:
            mine[name] = theirs[name]
    if "_torch_params" in mine.get("_modules", ()):
        graph._torch_params.training = mine["training"]


def sequence_of(model: Any) -> list[Any]:
    """Returns the layers of a Sequential, with its `InputLayer` if it has one."""
    return list(model._layers)


def set_sequence(model: Any, layers: list[Any], graph: Any) -> None:
    """Gives a Sequential its layers and the Functional model behind them.

    One that was quantized takes no others without being asked to.
    """
    if [address(x) for x in model._layers] != [address(x) for x in layers]:
        set_on_built(model, "_layers", list(layers))
    if model._functional is not graph:
        set_on_built(model, "_functional", graph)
    model.built = True


def seen_as(model: Any, kind: type) -> Any:
    """Returns a second object of another class that has the same attributes.

    Not equal ones: both objects hold the one dict, and what is set on either is
    set on both.
    """
    view: Any = object.__new__(kind)
    object.__setattr__(view, "__dict__", vars(model))
    return view


def behind(view: Any) -> Any:
    """Returns the model that `seen_as` was given: `build` is bound to it."""
    return vars(view)["build"].__wrapped__.__self__


def count_parameters(*operations: Any) -> int:
    """Returns how many numbers the weights of layers have, those they share once."""
    layers = [op for op in operations if isinstance(op, Layer)]
    weights = {address(weight): weight for layer in layers for weight in layer.weights}
    return sum(math.prod(weight.shape) for weight in weights.values())


def chain_of(layers: list[Any], name: str) -> Any:
    """Returns a Sequential that calls layers one after the other."""
    return Sequential(layers, name=name)


def identity(name: str) -> Any:
    """Returns a layer that returns what it is given, its mask too."""
    return keras.layers.Identity(name=name)


def set_class(model: Any, kind: type) -> None:
    """Makes a model an instance of a class that it was derived from."""
    model.__class__ = kind


def runs_its_graph(model: Any) -> bool:
    """Tells whether calling a model does nothing but what its graph says."""
    return type(model).call in (Functional.call, Sequential.call)
