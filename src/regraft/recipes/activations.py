"""Other activations in a whole model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from .. import _keras
from .._errors import UsageTypeError, explain
from ._common import as_activation, as_built, no_match

# What a layer computes, if it was made with nothing but these.
_LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "relu": (
        keras.layers.ReLU,
        {"max_value": None, "negative_slope": 0.0, "threshold": 0.0},
    ),
    "relu6": (
        keras.layers.ReLU,
        {"max_value": 6.0, "negative_slope": 0.0, "threshold": 0.0},
    ),
    "elu": (keras.layers.ELU, {"alpha": 1.0}),
    "softmax": (keras.layers.Softmax, {"axis": -1}),
}


def swap_activation(model: Any, old: Any, new: Any, *, where: Any = "*") -> Any:
    """Exchanges an activation wherever it is used: arguments, layers, operations.

    Args:
        model: A model or its graph.
        old: The activation: a name or a function, which means a layer's `activation`,
            an `Activation` layer, a layer such as `ReLU` that computes the same, or
            one of `keras.ops`; or the class of a layer.
        new: A name or a function.
        where: Only in these layers.

    Returns:
        A new model with all weights of the old one, apart from those of layers of
        the class `old`.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(9, "relu")])
    >>> new = regraft.recipes.swap_activation(model, "relu", "gelu")
    >>> new.layers[0].activation.__name__
    'gelu'
    """
    found = as_built(model)
    function = as_activation("new", new)
    is_wanted = _question(old)
    attributes: dict[str, Any] = {}
    places = []
    for node in found.find(where):
        if any(node.path.startswith(f"{path}/") for path in attributes):
            continue  # It was made by the layer around it, which is set.
        if is_wanted(getattr(node.layer, "activation", None)):
            attributes[node.path] = node
        elif node.outputs and is_wanted(node.layer):
            places.append(node)
    if not attributes and not places:
        raise no_match(
            "swap_activation", found.name, "a model that uses it", f"{old!r}"
        )
    edited = found
    if attributes:
        edited = edited.set(tuple(attributes.values()), activation=function)
    if places:
        edited = edited.replace(
            tuple(places), lambda was: keras.layers.Activation(function, name=was.name)
        )
    return edited.build()


def _question(old: Any) -> Callable[[Any], bool]:
    """Returns what tells whether a function, layer or operation is the activation."""
    if isinstance(old, type):
        return lambda x: isinstance(x, old)
    try:
        name = keras.activations.get(old).__name__
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageTypeError(
            explain(
                "This is no activation.",
                where="argument `old`",
                expected="the name of an activation, a function, or the class of a "
                "layer",
                received=f"{old!r} (of type {type(old).__name__})",
                fix="pass for example `'relu'`, `keras.ops.relu` or "
                "`keras.layers.ReLU`",
            )
        ) from error
    kind, made_with = _LAYERS.get(name, (None, {}))
    own_name = _keras.function_name(keras.activations.get(old))

    def is_wanted(x: Any) -> bool:
        if kind is not None and _keras.computes_like(x, kind):
            return all(getattr(x, k, None) == v for k, v in made_with.items())
        if own_name is None or isinstance(x, keras.Layer):
            return x is old
        if _keras.operation_name(x) == own_name:
            return _keras.is_made_with_defaults(x)
        return _keras.function_name(x) == own_name

    return is_wanted
