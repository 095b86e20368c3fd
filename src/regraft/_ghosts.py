"""Copies of layers that work on their originals' variables, and take no memory.

A *ghost* goes further and forgets its variables: it can be built again, which tells
how a layer's weights start, or what they would be for another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from . import _keras
from ._atoms import ATOMS
from ._core import Keep, Maker
from ._errors import CopyError
from ._identity import address
from ._makers import share
from ._rules import Rules
from ._walk import Walk


class SameVariables(Rules):
    """Every variable stands for itself."""

    def maker(self, obj: Any) -> Maker | None:
        """Returns a maker for variables alone."""
        return share if isinstance(obj, _keras.Variable) else None


def spare_values(walk: Walk, layers: Iterable[Any]) -> None:
    """Lets the values of variables stand for themselves, too.

    On torch the parameter dicts of a layer hold them beside its variables.
    """
    for layer in layers:
        for variable in layer.variables:
            value = _keras.raw_value(variable)
            walk.remember(value, value)


def on_same_variables(layer: Any, *, keep: Keep | None = None) -> Walk:
    """Returns a walk that will copy a layer, but for its variables.

    Args:
        layer: The layer.
        keep: Asked of each object: should the copy share it with the layer?
    """
    walk = Walk(layer, rules=SameVariables(), keep=keep)
    spare_values(walk, [layer])
    return walk


def ids_inside(layer: Any) -> set[int]:
    """Returns the ids of the layers inside a layer, for them to be settled."""
    return {address(part) for part in _keras.all_layers(layer)} - {address(layer)}


def ghost_of(layer: Any, *, keep: Keep | None = None) -> tuple[Any, list[Any]]:
    """Returns a copy of a layer that can be built again, and all operations in it.

    Args:
        layer: The layer.
        keep: Asked of each object: should the ghost share it with the layer?
    """
    ghost, pairs = ghost_with_parts(layer, keep=keep)
    return ghost, [operation for _, operation in pairs]


def ghost_with_parts(
    layer: Any, *, keep: Keep | None = None, settled: Container[int] = ()
) -> tuple[Any, list[tuple[Any, Any]]]:
    """Returns a ghost, and each operation in the layer with the one in the ghost.

    Args:
        layer: The layer.
        keep: Asked of each object: should the ghost share it with the layer?
        settled: The ids of layers whose copies keep their variables.
    """
    walk = on_same_variables(layer, keep=keep)
    ghost = walk.run()
    for old, operation in walk.operations:
        if isinstance(operation, _keras.Layer) and address(old) not in settled:
            _keras.forget_variables(operation)
    return ghost, list(walk.operations)


def held_alike(layer: Any, ghost: Any) -> Iterator[tuple[Any, Any]]:
    """Yields layers with those that a ghost, once it is built, has in their places.

    It may have made them again: those that were copied are in no place then, or come
    first in a list to which it has added.
    """
    stack, seen = [(layer, ghost)], set[tuple[int, int]]()
    while stack:
        one, other = stack.pop()
        pair = address(one), address(other)
        if pair in seen:
            continue
        seen.add(pair)
        yield one, other
        stack += reversed(list(_alike(one, other, _keras.Layer)))


def variables_alike(layer: Any, ghost: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the variables of a layer with those that a ghost has in their places."""
    return _alike(layer, ghost, _keras.Variable)


def _alike(layer: Any, ghost: Any, kind: type) -> Iterator[tuple[Any, Any]]:
    """Yields what two layers hold in the same places, if it is of a kind."""
    stack: list[tuple[Any, Any]] = []
    stack.append((_keras.own_attributes(layer), _keras.own_attributes(ghost)))
    seen = set[tuple[int, int]]()
    while stack:
        one, other = stack.pop()
        pair = address(one), address(other)
        if type(one) is not type(other) or pair in seen:
            continue
        seen.add(pair)
        if isinstance(one, kind):
            yield one, other
        elif isinstance(one, dict):
            pairs = [(x, other[key]) for key, x in one.items() if key in other]
            stack += [x for x in reversed(pairs) if type(x[0]) not in ATOMS]
        elif isinstance(one, list | tuple) and len(one) <= len(other):
            pairs = list(zip(one, other[len(other) - len(one) :], strict=True))
            stack += [x for x in reversed(pairs) if type(x[0]) not in ATOMS]


def ways_to_make(layer: Any, keep: Keep | None) -> list[Callable[[], Any]]:
    """Returns functions that make layers like this one with new variables, or None."""
    if _keras.is_quantized(layer):
        return [partial(quantized_again, layer, keep)]
    return [
        partial(built_again, layer, keep),
        partial(constructed_again, layer),
        partial(built_again, layer, keep, blank="variables"),
        partial(built_again, layer, keep, blank="and what is empty"),
    ]


def built_again(
    layer: Any,
    keep: Keep | None,
    *,
    blank: Literal["nothing", "variables", "and what is empty"] = "nothing",
) -> Any:
    """Builds a copy of the layer that has forgotten its variables.

    Those of layers inside are forgotten, too, as most layers build them; unless it
    cannot be built that way, as it reads them.

    Args:
        layer: The layer.
        keep: Asked of each object: should the ghost share it with the layer?
        blank: Which of its attributes are to be None: those that hold variables of its
            own, also those that hold nothing in a list or dict. A `build()` may make
            those alone that are not there.
    """
    shapes = _keras.build_shapes(layer)
    if shapes is None:
        return None
    inside = ids_inside(layer)
    for settled in ((), inside) if inside else ((),):
        ghost, _ = ghost_with_parts(layer, keep=keep, settled=settled)
        if blank != "nothing":
            empty = _keras.own_state(ghost) if blank == "and what is empty" else ()
            _keras.forget_attributes(ghost, _keras.own_variables(layer), empty)
        with suppress(Exception):  # Whatever a layer raises that cannot be built twice.
            ghost.build(**shapes)
            return ghost
    return None


def quantized_again(layer: Any, keep: Keep | None) -> Any:
    """Builds a copy of a quantized layer with floats, and quantizes it again."""
    shapes = _keras.build_shapes(layer)
    if shapes is None or not _keras.quantizes_alone(layer):
        return None
    mode = layer.quantization_mode
    ghost, _ = ghost_of(layer, keep=keep)
    config = _keras.quantization_of(ghost)
    _keras.forget_quantization(ghost)
    try:
        ghost.build(**shapes)
        _keras.quantize(ghost, mode, config)
    except Exception:  # Whatever a layer raises that cannot be built twice.
        return None
    return ghost


def constructed_again(
    layer: Any, make: Callable[[Any], Any] = _keras.made_again
) -> Any:
    """Makes the layer again from its configuration, as Keras would.

    Not if that has trained weights in it, as the pickle of a module of torch does.
    """
    with suppress(CopyError):  # What is kept, since it cannot be copied.
        if _keras.describes_weights(Walk(layer).run()):
            return None
    ghost, shapes = make(layer), _keras.build_shapes(layer)
    if ghost is not None and shapes is not None and not ghost.built:
        try:
            ghost.build(**shapes)
        except Exception:  # Whatever a layer raises that cannot be built for them.
            return None
    return ghost
