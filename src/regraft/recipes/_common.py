"""What several recipes need."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from .. import _keras
from .._errors import UsageError, UsageTypeError, explain
from .._graph import Graph, graph

Array = np.ndarray[Any, Any]


def as_graph(model: Any) -> Graph:
    """Returns the graph of a model, or the graph itself."""
    return model if isinstance(model, Graph) else graph(model)


def as_built(model: Any) -> Graph:
    """Returns a graph whose layers are as they will be: an edited one is built."""
    return graph(model.build()) if isinstance(model, Graph) else graph(model)


def no_match(recipe: str, name: str, expected: str, received: str) -> UsageError:
    """Returns the error for a recipe that finds nothing to do."""
    return UsageError(
        explain(
            f"`{recipe}` found nothing to change.",
            where=name,
            expected=expected,
            received=received,
            fix="look at `print(regraft.graph(model))` and choose other layers",
        )
    )


def whole_number(argument: str, number: Any) -> None:
    """Refuses what is no size of something."""
    is_whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not is_whole or number < 1:
        raise UsageTypeError(
            explain(
                f"`{argument}` must be a whole number from 1 on.",
                where=f"argument `{argument}`",
                expected="an int from 1 on",
                received=f"{number!r} (of type {type(number).__name__})",
                fix="pass for example `4`",
            )
        )


def as_activation(argument: str, activation: Any) -> Any:
    """Returns the function that an argument means; refuses what is none."""
    try:
        if isinstance(activation, type):
            raise TypeError("a class, which makes layers")
        return keras.activations.get(activation)
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageTypeError(
            explain(
                "This is no activation.",
                where=f"argument `{argument}`",
                expected="the name of an activation, a function or a layer",
                received=f"{activation!r} (of type {type(activation).__name__})",
                fix="pass for example `'relu'` or `keras.ops.relu`",
            )
        ) from error


def graphs(whole: Graph) -> Iterator[tuple[str, Graph]]:
    """Yields a graph and those of the models inside it, each once, with its prefix."""
    seen: set[int] = set()
    stack = [("", whole)]
    while stack:
        prefix, found = stack.pop()
        yield prefix, found
        for node in found:
            if node.outputs and node.inside and id(node.layer) not in seen:
                seen.add(id(node.layer))
                if _keras.inner_graph(node.layer) is not None:
                    stack.append((f"{prefix}{node.path}/", graph(node.layer)))


def value(variable: Any) -> Array:
    """Returns the value of a variable, as an array of its own."""
    return np.array(keras.ops.convert_to_numpy(variable))


def channel_axis(layer: Any, rank: int) -> int:
    """Returns the axis of the channels that a layer works with, the batch counted."""
    is_first = getattr(layer, "data_format", None) == "channels_first"
    return 1 if is_first else rank - 1


def remade(
    layer: Any,
    shape: Any,
    weights: Mapping[str, Any],
    *,
    where: str,
    **config: Any,
) -> Any:
    """Makes a layer once more with other weights, and sizes that go with them.

    Args:
        layer: The layer.
        shape: The shape for which the new one is built.
        weights: New values of variables, by their names. All others stay.
        where: The path of the layer, for messages.
        **config: What is different in its configuration.

    Returns:
        The new layer, built. What its user put on the old one is on it, too.
    """
    if getattr(layer, "quantization_mode", None) is not None:
        raise _keeps_its_weights(where, f"{layer.quantization_mode} weights")
    made = {**_unbuilt(layer.get_config()), **config}
    for name in ("activation", "recurrent_activation"):
        if name in made and callable(getattr(layer, name, None)):
            # As it is: not every function can be found again by its name.
            made[name] = getattr(layer, name)
    # Nothing need be drawn: all variables get values below.
    drawn = [n for n in made if n.endswith("_initializer") and n in vars(layer)]
    new = type(layer).from_config({**made, **dict.fromkeys(drawn, "zeros")})
    with _keras.scope_around(layer):
        new.build(shape)
    for name in drawn:
        setattr(new, name, getattr(layer, name))
    old = {} if layer.built is False else _by_order(layer.variables)
    for key, variable in _by_order(new.variables).items():
        found = weights.get(variable.name)
        if found is None and key in old:
            found = value(old[key])
        elif callable(found):
            found = found(value(old[key]))
        if found is None or np.shape(found) != tuple(variable.shape):
            said = "no such weight" if found is None else f"shape {np.shape(found)}"
            raise _keeps_its_weights(
                f"{where}: {variable.name}", said, f"shape {tuple(variable.shape)}"
            )
        variable.assign(found)
        if key in old and variable.trainable != old[key].trainable:
            variable.trainable = old[key].trainable
    carry_on(layer, new, where)
    return new


def carry_on(layer: Any, new: Any, where: str) -> None:
    """Puts on a layer what its user put on the one that it was made of."""
    known = _keras.own_attributes(new)
    for name, found in _keras.own_attributes(layer).items():
        if name in known:
            continue
        if isinstance(found, _keras.Variable):
            said = f"a variable of shape {tuple(found.shape)} that it does not make"
            raise _keeps_its_weights(f"{where}: {name}", said)
        _keras.set_on_built(new, name, found)


def _keeps_its_weights(
    where: str, received: str, expected: str = "weights as its class makes them"
) -> UsageError:
    return UsageError(
        explain(
            "The weights of this layer cannot be changed with its size.",
            where=where,
            expected=expected,
            received=received,
            fix="undo what changed the layer's weights before, such as LoRA or "
            "quantization, or replace the layer yourself",
        )
    )


def _unbuilt(config: Any) -> Any:
    """Returns a configuration without the shapes that layers inside are built for."""
    if not isinstance(config, dict):
        return config
    return {k: _unbuilt(v) for k, v in config.items() if k != "build_config"}


def _by_order(variables: Sequence[Any]) -> dict[tuple[str, int], Any]:
    """Returns variables by name, those of one name counted."""
    found: dict[tuple[str, int], Any] = {}
    for variable in variables:
        mine = _keras.own_name(variable)
        count = sum(name == mine for name, _ in found)
        found[mine, count] = variable
    return found


def exchange(found: Graph, made: Mapping[int, Any]) -> Any:
    """Puts new layers in the places of old ones, all at once.

    Args:
        found: The graph.
        made: The new layers, by the ids of the old ones.
    """
    if not made:
        return found
    return found.replace(lambda node: id(node.layer) in made, lambda old: made[id(old)])


def called_to_learn(whole: Graph) -> list[Any]:
    """Returns the nodes that are called with `training=True`, and all inside them."""
    told = [n for n in whole.walk() if _holds_true(n.arguments)]
    return [inside for node in told for inside in node.walk()]


def _holds_true(arguments: Any) -> bool:
    return any(x is True for x in keras.tree.flatten(arguments))


def freeze_but(model: Any, layers: Container[int], learned: Sequence[Any]) -> None:
    """Freezes a model that was just built, apart from some variables.

    These learn, also where what holds them was frozen.

    Args:
        model: The model, which is changed.
        layers: The ids of the layers that are left as they are.
        learned: The variables that are trained.
    """
    found = graph(model)
    learning = {id(x.layer) for x in called_to_learn(found)}
    for node in found.walk():
        # The layers, so that batch statistics stay what they are; not those that hold
        # others, because that would freeze all inside, nor those that are told to
        # learn when they are called: frozen, they compute something else.
        is_layer = isinstance(node.layer, _keras.Layer) and not node.is_input
        is_left = id(node.layer) in layers or id(node.layer) in learning
        if is_layer and not node.inside and not is_left:
            node.layer.trainable = False
    kept = {id(variable) for variable in learned}
    for layer in _keras.all_layers(model):
        if not layer.trainable and any(id(v) in kept for v in layer.variables):
            _keras.set_trainable_alone(layer)
    for variable in model.variables:
        if variable.trainable != (id(variable) in kept):
            variable.trainable = id(variable) in kept
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:  # It has slots for what was trained before.
        model.optimizer = type(optimizer).from_config(optimizer.get_config())
