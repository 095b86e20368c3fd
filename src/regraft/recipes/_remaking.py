"""Makes a layer once more, with weights of other sizes.

A copy of the layer forgets its variables and is built for the new size. So it need not
be made by its constructor, which only its user knows how to call, and all that the user
gave to it stays: regularizers, functions, attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from .. import _keras, _refit
from .._errors import CopyError, UsageError, explain
from .._graph.assemble import set_attribute
from .._graph.attributes import changes
from .._identity import address
from .._pairing import named_alike
from .._shape_checks import first_line
from .._walk import Walk
from ._common import value

_ON_VARIABLES = ("trainable", "regularizer", "constraint")


def remade(
    layer: Any,
    shape: Any,
    weights: Mapping[str, Any],
    *,
    where: str,
    inside: tuple[Any, Any] | None = None,
    **settings: Any,
) -> Any:
    """Makes a layer once more with other weights, and sizes that go with them.

    Args:
        layer: The layer.
        shape: The shape for which the new one is built.
        weights: New values of variables, by their names. All others stay.
        where: The path of the layer, for messages.
        inside: A layer inside it, and the one that takes its place, which is built.
        **settings: What is different: arguments of its constructor, or attributes.

    Returns:
        The new layer, built. What its user put on the old one is on it, too.
    """
    for part in _keras.all_layers(layer):
        mode = getattr(part, "quantization_mode", None)
        if mode is not None:
            raise _keeps_its_weights(where, f"{mode} weights")
    new = _copy_to_build(layer, inside)
    for way, found in _to_set(layer, settings, where).items():
        set_attribute(new, way, found)
    _build(new, layer, shape, where)
    was, now = (inside[0].variables, inside[1].variables) if inside else ([], [])
    olds = _without(layer.variables, was)
    pairs = list(named_alike(olds, _without(new.variables, now)))
    _check_made(olds, pairs, weights, where)
    for old, variable in pairs:
        _fill(variable, old, weights.get(variable.name), where)
    _take_over_states(layer, new)
    for part in _keras.all_layers(new):
        _keras.retrack(part)  # Variables have their names by now.
    return new


def _copy_to_build(layer: Any, inside: tuple[Any, Any] | None) -> Any:
    """Returns a copy of a layer that has forgotten its variables."""
    parts = {address(part) for part in _keras.all_layers(layer)}
    shared = {address(function) for function in _functions(layer)}

    def is_kept(x: Any) -> bool:
        # What other layers have as well is copied when the model is, once for all.
        is_other = isinstance(x, _keras.Operation) and address(x) not in parts
        return is_other or address(x) in shared

    walk = Walk(layer, keep=is_kept)
    if inside is not None:
        walk.remember(*inside)
    new = walk.run()
    for _, part in walk.operations:
        _keras.forget_variables(part)
        if _refit.has_states(part):
            part.states = None
    return new


def _functions(layer: Any) -> list[Any]:
    """Returns regularizers, activations and the like that do not know the layer."""
    values = [
        found
        for part in _keras.all_layers(layer)
        for found in _keras.own_attributes(part).values()
    ]
    return [x for x in values if callable(x) and not _holds_layers(x)]


def _holds_layers(function: Any) -> bool:
    """Tells whether a function has to do with layers, variables or random streams."""
    try:
        met = Walk(function).survey()
    except CopyError:  # Whoever builds the model will be told.
        return False
    return bool(met.operations or met.variables or met.seed_generators)


def _to_set(layer: Any, settings: dict[str, Any], where: str) -> dict[str, Any]:
    """Returns the attributes that settings mean, by the way to them."""
    found = changes(layer, settings, where, is_built=False)
    # Not every constructor listens: it may say itself that there is no bias.
    own = {name: new for name, new in settings.items() if name in vars(layer)}
    return {**own, **found}


def _build(new: Any, layer: Any, shape: Any, where: str) -> None:
    try:
        with _keras.scope_around(layer), _nothing_drawn(new):
            new.build(shape)
    except Exception as error:  # Whatever a user's layer raises.
        raise UsageError(
            explain(
                f"This {type(layer).__name__} cannot be built for another size.",
                where=where,
                expected="a layer whose `build()` may be called again",
                received=f"{type(error).__name__}: {first_line(error)}",
                fix="replace the layer yourself with `Graph.replace`",
            )
        ) from error


@contextmanager
def _nothing_drawn(layer: Any) -> Iterator[None]:
    """A context in which initializers draw nothing: all variables get values later."""
    found = [
        (vars(part), name, initializer)
        for part in _keras.all_layers(layer)
        for name, initializer in vars(part).items()
        if name.endswith("_initializer") and callable(initializer)
    ]
    for state, name, _ in found:
        state[name] = keras.initializers.Zeros()
    try:
        yield
    finally:
        for state, name, initializer in found:
            state[name] = initializer


def _without(variables: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    left_out = {address(variable) for variable in others}
    return [variable for variable in variables if address(variable) not in left_out]


def _check_made(
    olds: list[Any],
    pairs: list[tuple[Any, Any]],
    weights: Mapping[str, Any],
    where: str,
) -> None:
    """Refuses variables that `build()` did not make, and that are needed."""
    made = {address(old) for old, _ in pairs}
    for variable in olds:
        if address(variable) not in made:
            said = f"a variable of shape {tuple(variable.shape)} that it does not make"
            raise _keeps_its_weights(f"{where}: {variable.name}", said)
    names = {variable.name for _, variable in pairs}
    for name, found in weights.items():
        if name not in names and not callable(found):
            raise _keeps_its_weights(f"{where}: {name}", "no such weight")


def _fill(variable: Any, old: Any, found: Any, where: str) -> None:
    """Gives a variable its value, and what else is said of the one that it was."""
    if old is not None and (found is None or callable(found)):
        found = value(old) if found is None else found(value(old))
    if found is None or np.shape(found) != tuple(variable.shape):
        said = "no such weight" if found is None else f"shape {np.shape(found)}"
        raise _keeps_its_weights(
            f"{where}: {variable.name}", said, f"shape {tuple(variable.shape)}"
        )
    variable.assign(found)
    if old is not None:
        _keras.set_number(variable, old)
        for name in _ON_VARIABLES:
            if getattr(variable, name) is not getattr(old, name):
                setattr(variable, name, getattr(old, name))


def _take_over_states(layer: Any, new: Any) -> None:
    """Lets RNNs remember what they did, which has to do with none of these sizes."""
    if _refit.shapes_of_states(layer) == _refit.shapes_of_states(new):
        for old, state in zip(_refit.states(layer), _refit.states(new), strict=True):
            state.assign(value(old))


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
