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
