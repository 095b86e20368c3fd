"""Draws the weights of a copy anew, as its layers' own initializers draw them.

A variable forgets its initializer once it has a value, so the only one who
knows how a layer's weights start is the layer's `build()`. For each layer that
owns variables a *ghost* is made, a copy of the layer that has forgotten its
variables, and built again; the values of the ghost's variables move into the
layer's own. Wiring, ties, names and everything else stay as they are.

A layer that builds the layers inside it may write to their weights as well, so the
outermost one that builds a layer is asked for what its weights start with.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from . import _backends, _keras
from ._data import take_drawn_data
from ._errors import CopyError, explain
from ._ghosts import (
    ghost_of,
    ghost_with_parts,
    held_alike,
    ids_inside,
    variables_alike,
)
from ._identity import address
from ._seeds import Seeds, keeps_sources, reseed, seeded
from ._states import reset_states
from ._walk import Keep, Walk


def redraw(walk: Walk, seed: int | None) -> None:
    """Draws all weights of the copy that `walk` made.

    What `adapt()` learned is data, not weights, and stays.

    Args:
        walk: The walk that made the copy.
        seed: Makes the result reproducible. It re-seeds every initializer and
            every random stream, also those that were given a fixed seed.
    """
    seeds = Seeds(seed)
    reseed(walk, seeds)
    keep = keeps_sources(walk)
    starts = [
        _keras.to_numpy(stream.state).copy() for _, stream in walk.seed_generators
    ]
    layers = [op for _, op in walk.operations if isinstance(op, _keras.Layer)]
    inside = [(layer, _keras.all_layers(layer)) for layer in layers]
    owners = sorted(inside, key=lambda pair: len(pair[1]))
    # What stands for itself in the copy, or has come from elsewhere, is not touched.
    mine = {address(new) for _, new in walk.variables}
    parts = {address(part): part for _, parts in owners for part in parts}
    held = [v for part in parts.values() for v in _keras.own_variables(part)]
    foreign = [variable for variable in held if address(variable) not in mine]
    drawn = set(map(address, foreign))
    drawn |= {address(v) for layer in layers for v in _keras.learned_by_adapt(layer)}
    settled = drawn.copy()
    # A layer may be made, or built, with the very layers that it holds.
    known = {address(v) for pair in walk.variables for v in pair}
    with seeded(seeds), _keras.unchanged(foreign):
        for layer in layers:
            _redraw_layer(layer, drawn, keep)
        _redraw_made_with(owners, drawn, known)
        _redraw_others(owners, walk)
        for layer in layers:
            _reset_modules(layer, drawn)
        # A variable may have been met first where it is borrowed.
        for layer in layers:
            _check_drawn(layer, drawn)
        # Owners may read what the layers start with that they do not build.
        for owner, parts in reversed(owners):
            _redraw_built_by(owner, parts, settled, known, keep)
    reset_states(walk)
    # A ghost's `build()` may have drawn from the streams it shares with its layer.
    for (_, stream), start in zip(walk.seed_generators, starts, strict=True):
        stream.state.assign(start)


def _redraw_layer(layer: Any, drawn: set[int], keep: Keep | None) -> None:
    own = [v for v in _keras.own_variables(layer) if address(v) not in drawn]
    if not own:
        return
    for make in _ways_to_make(layer, keep):
        ghost = make()
        if ghost is None:
            continue
        _move_values(ghost, layer, _keras.own_variables(ghost), own, drawn)
        take_drawn_data(layer, ghost, partial(_with_other_draws, make))
        own = [v for v in own if address(v) not in drawn]
        if not own:
            return
    if _keras.is_quantized(layer):
        return  # Its initializers draw floats.
    for variable in own:
        initializer = getattr(layer, f"{variable.name}_initializer", None)
        if callable(initializer):
            variable.assign(initializer(variable.shape, dtype=variable.dtype))
            drawn.add(address(variable))


def _redraw_built_by(
    owner: Any, inside: list[Any], drawn: set[int], known: set[int], keep: Keep | None
) -> None:
    """Asks a layer that builds those inside it what their weights start with.

    Args:
        owner: The layer.
        inside: The layer, and those inside it.
        drawn: The ids of variables whose values are not to be changed any more.
        known: The ids of variables that are not new.
        keep: Asked of each object: should the ghost share it with the layer?
    """
    if len(inside) == 1 or not _keras.says_how_to_build(owner):
        return
    if not any(_undrawn(part, drawn) for part in inside):
        return
    ghost = _ghost_by_build(owner, keep)
    if ghost is None:
        return
    used = set(known)
    parts = list(held_alike(owner, ghost))
    for part, other in parts:
        _move_new_values(other, part, drawn, used)
        used |= _keras.held_by_layers([other])

    seconds: dict[int, Any] = {}

    def second_of(part: Any) -> Any:
        if not seconds:
            second = _with_other_draws(partial(_ghost_by_build, owner, keep))
            pairs = held_alike(owner, second or ghost)
            seconds.update({address(a): b for a, b in pairs})
        return seconds.get(address(part))

    for part, other in parts:
        take_drawn_data(part, other, partial(second_of, part))


def _with_other_draws(make: Callable[[], Any]) -> Any:
    """Makes a ghost that draws other numbers than it would."""
    with _keras.reseeded_draws(Seeds(0).instead_of):
        return make()


def _redraw_made_with(
    owners: list[tuple[Any, list[Any]]], drawn: set[int], known: set[int]
) -> None:
    """Asks the layers around those that cannot be made again alone.

    Args:
        owners: Layers and those inside them, the innermost first.
        drawn: The ids of variables that have new values.
        known: The ids of variables that are not new.
    """
    for owner, inside in owners:
        if not any(_undrawn(part, drawn) for part in inside):
            continue
        ghost = _ghost_by_config(owner)
        others = [] if ghost is None else _keras.all_layers(ghost)
        if [type(x) for x in others] == [type(x) for x in inside]:
            for part, other in zip(inside, others, strict=True):
                _move_new_values(other, part, drawn, known)


def _redraw_others(owners: list[tuple[Any, list[Any]]], walk: Walk) -> None:
    """Draws what layers learn that no Keras variable holds, and checks that it can be.

    Buffers that nobody makes anew may be constants, and stay.
    """
    backend = _backends.active()
    left = {address(new) for old, new in walk.memo.items() if address(new) != old}
    left -= {address(_keras.raw_value(new)) for _, new in walk.variables}
    for owner, _ in owners:
        mine = backend.other_weights(owner)
        mine = {name: value for name, value in mine.items() if address(value) in left}
        ghost = _ghost_by_config(owner) if mine else None
        found = {} if ghost is None else backend.other_weights(ghost)
        for name in mine.keys() & found.keys():
            if mine[name].shape == found[name].shape:
                backend.write(mine[name], found[name])
                left.discard(address(mine[name]))
    for owner, _ in owners:
        for name, value in backend.other_weights(owner).items():
            if address(value) in left and backend.is_trained(value):
                raise _nobody_knows(owner, name)


def _reset_modules(layer: Any, drawn: set[int]) -> None:
    """Lets modules draw their weights that nobody around them can make again."""
    own = _undrawn(layer, drawn)
    values = {address(x) for x in _backends.active().reset_modules(layer) if own}
    drawn |= {address(v) for v in own if address(_keras.raw_value(v)) in values}


def _move_new_values(
    source: Any, target: Any, drawn: set[int], known: set[int]
) -> None:
    made = [v for v in _keras.own_variables(source) if address(v) not in known]
    _move_values(source, target, made, _undrawn(target, drawn), drawn)


def _undrawn(layer: Any, drawn: set[int]) -> list[Any]:
    if _keras.is_quantized(layer):
        return []  # What its class makes starts as zeros.
    return [v for v in _keras.own_variables(layer) if address(v) not in drawn]


def _check_drawn(layer: Any, drawn: set[int]) -> None:
    for variable in _keras.own_variables(layer):
        if address(variable) not in drawn:
            if _keras.is_quantized(layer):
                raise cannot_quantize(layer, variable)
            raise _nobody_knows(layer, variable.path)


def _nobody_knows(layer: Any, name: str) -> CopyError:
    return CopyError(
        explain(
            "A variable cannot be drawn anew: nobody knows how it starts.",
            where=f"{layer.name}: {name}",
            expected="a variable made in `build()`, or a layer that can be made again "
            "with `from_config(get_config())`",
            received=f"{type(layer).__name__}, which made it in `__init__` or was "
            "handed it",
            fix="make the variable in `build()`, give the class a `get_config()`, or "
            "use `weights='copy'`",
        )
    )


def cannot_quantize(layer: Any, variable: Any) -> CopyError:
    """Returns the error for a quantized layer that cannot be made again."""
    return CopyError(
        explain(
            "A quantized variable cannot be drawn anew: it starts as zeros.",
            where=f"{layer.name}: {variable.path}",
            expected="a layer that can be built with floats and quantized again, to "
            "int8 or int4, without data",
            received=f"{type(layer).__name__}, quantized to {layer.quantization_mode}",
            fix="clone with fresh weights first, then quantize the copy",
        )
    )


def _move_values(
    ghost: Any, layer: Any, sources: list[Any], targets: list[Any], drawn: set[int]
) -> None:
    """Pairs variables in the same place, and others in order.

    Args:
        ghost: The layer that holds the new variables.
        layer: The layer whose variables are drawn.
        sources: The new variables.
        targets: Variables that have no new values yet.
        drawn: The ids of variables that have.
    """
    places = {address(a): address(b) for a, b in variables_alike(layer, ghost)}
    free = {address(source): source for source in sources}
    pairs, others = [], []
    for target in targets:
        match = free.get(places.get(address(target), 0))
        if match is None or _signature(match) != _signature(target):
            others.append(target)
        else:
            pairs.append((target, free.pop(address(match))))
    for placed in places.values():
        free.pop(placed, None)
    for target in others:
        wanted = _signature(target)
        match = next((s for s in free.values() if _signature(s) == wanted), None)
        if match is not None:
            pairs.append((target, free.pop(address(match))))
    for target, source in pairs:
        target.assign(source.value)
        drawn.add(address(target))


def _signature(variable: Any) -> tuple[Any, ...]:
    return _keras.own_name(variable), _keras.kind_of(variable)


def learned_variables(layer: Any) -> list[Any]:
    """Returns the variables that `adapt()` has changed: data that cannot be drawn."""
    learned = _keras.learned_by_adapt(layer)
    ghost = _ghost_by_build(layer, None) if learned else None
    starts = [] if ghost is None else _keras.own_variables(ghost)
    return [
        variable
        for variable in learned
        if not any(_is_equal(variable, start) for start in starts)
    ]


def _is_equal(variable: Any, start: Any) -> bool:
    if _signature(variable) != _signature(start):
        return False
    return np.array_equal(_keras.to_numpy(variable), _keras.to_numpy(start))


def _ways_to_make(layer: Any, keep: Keep | None) -> list[Callable[[], Any]]:
    """Returns functions that make layers like this one with new variables, or None."""
    if _keras.is_quantized(layer):
        return [partial(_ghost_by_quantizing, layer, keep)]
    return [
        partial(_ghost_by_build, layer, keep),
        partial(_ghost_by_config, layer),
        partial(_ghost_by_build, layer, keep, blank=True),
    ]


def _ghost_by_build(layer: Any, keep: Keep | None, *, blank: bool = False) -> Any:
    """Builds a copy of the layer that has forgotten its variables.

    Those of layers inside are forgotten, too, as most layers build them; unless it
    cannot be built that way, as it reads them.

    Args:
        layer: The layer.
        keep: Asked of each object: should the ghost share it with the layer?
        blank: Whether its attributes are to be None that hold variables of its own:
            a `build()` may make those alone that are not there.
    """
    shapes = _keras.build_shapes(layer)
    if shapes is None:
        return None
    inside = ids_inside(layer)
    for settled in ((), inside) if inside else ((),):
        ghost, _ = ghost_with_parts(layer, keep=keep, settled=settled)
        if blank:
            _keras.forget_attributes(ghost, _keras.own_variables(layer))
        with suppress(Exception):  # Whatever a layer raises that cannot be built twice.
            ghost.build(**shapes)
            return ghost
    return None


def _ghost_by_quantizing(layer: Any, keep: Keep | None) -> Any:
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


def _ghost_by_config(layer: Any) -> Any:
    """Makes the layer again from its configuration, as Keras would."""
    ghost, shapes = _keras.made_again(layer), _keras.build_shapes(layer)
    if ghost is not None and shapes is not None and not ghost.built:
        try:
            ghost.build(**shapes)
        except Exception:  # Whatever a layer raises that cannot be built for them.
            return None
    return ghost
