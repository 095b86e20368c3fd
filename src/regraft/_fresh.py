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
from functools import partial
from typing import Any

import numpy as np

from . import _backends, _keras
from ._data import Remake, arrays_alike, take_drawn_data
from ._errors import CopyError, explain
from ._ghosts import (
    built_again,
    constructed_again,
    held_alike,
    variables_alike,
    ways_to_make,
)
from ._identity import address
from ._seeds import Seeds, keeps_sources, reseed, seeded
from ._states import reset_states
from ._walk import Walk


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
    streams = [stream.state for _, stream in walk.seed_generators]
    starts = [_keras.to_numpy(state).copy() for state in streams]
    drawing = _Drawing(walk)
    with seeded(seeds), _keras.unchanged(drawing.foreign):
        drawing.run()
    reset_states(walk)
    # A ghost's `build()` may have drawn from the streams it shares with its layer.
    for state, start in zip(streams, starts, strict=True):
        state.assign(start)


class _Drawing:
    """Who draws which variable of a copy, one after the other."""

    def __init__(self, walk: Walk) -> None:
        self._keep = keeps_sources(walk)
        self._layers = [op for _, op in walk.operations if isinstance(op, _keras.Layer)]
        inside = [(layer, _keras.all_layers(layer)) for layer in self._layers]
        # Layers and those inside them, the innermost first.
        self._owners = sorted(inside, key=lambda pair: len(pair[1]))
        parts = {address(part): part for _, parts in inside for part in parts}
        self._variables = [v for part in parts.values() for v in _own(part)]
        # What stands for itself in the copy, or has come from elsewhere.
        mine = {address(new) for _, new in walk.variables}
        self.foreign = [v for v in self._variables if address(v) not in mine]
        data = [v for x in self._layers for v in _keras.learned_by_adapt(x)]
        # The ids of variables whose values are not to be changed at all, or any more.
        self._settled = frozenset(address(v) for v in (*self.foreign, *data))
        self._drawn = set(self._settled)
        # A layer may be made, or built, with the very layers that it holds.
        self._known = {address(v) for pair in walk.variables for v in pair}
        # The ids of what no Keras variable holds and is as it was.
        made = {address(new) for old, new in walk.memo.items() if address(new) != old}
        # The ids of what both models share.
        self._shared = {old for old, new in walk.memo.items() if address(new) == old}
        held = {address(_keras.raw_value(new)) for _, new in walk.variables}
        self._left = made - held

    def run(self) -> None:
        """Draws everything, or tells what nobody knows how to draw."""
        for layer in self._layers:
            self._ask_layer(layer)
        for owner, inside in self._owners:
            self._ask_constructor(owner, inside)
        for owner, _ in self._owners:
            self._draw_beside(owner)
        for layer in self._layers:
            self._reset_modules(layer)
        # A variable may have been met first where it is borrowed.
        for layer in self._layers:
            self._check(layer)
        # Owners may read what the layers start with that they do not build.
        self._drawn = set(self._settled)
        for owner, inside in reversed(self._owners):
            self._ask_builder(owner, inside)
        for owner, inside in self._owners:
            self._tie(owner, inside)

    def _ask_layer(self, layer: Any) -> None:
        """Draws the variables of a layer as it would by itself."""
        own = [v for v in _own(layer) if address(v) not in self._drawn]
        if not own:
            self._draw_data(layer)
            return
        for make in ways_to_make(layer, self._keep):
            ghost = make()
            if ghost is None:
                continue
            if self._move_values(ghost, layer, _own(ghost), own):
                self._take_data(layer, ghost, partial(self._with_other_draws, make))
            own = [v for v in own if address(v) not in self._drawn]
            if not own:
                return
        if _keras.is_quantized(layer):
            return  # Its initializers draw floats.
        for variable in own:
            initializer = getattr(layer, f"{variable.name}_initializer", None)
            if callable(initializer):
                variable.assign(initializer(variable.shape, dtype=variable.dtype))
                self._drawn.add(address(variable))

    def _draw_data(self, layer: Any) -> None:
        """Lets a `build()` that makes neither weights nor layers draw what it keeps."""
        is_users = not _keras.is_of_keras(type(layer))
        if is_users and not _own(layer) and _keras.says_how_to_build(layer):
            make = partial(built_again, layer, self._keep)
            ghost = None if len(_keras.all_layers(layer)) > 1 else make()
            if ghost is not None:
                self._take_data(layer, ghost, partial(self._with_other_draws, make))

    def _ask_constructor(self, owner: Any, inside: list[Any]) -> None:
        """Asks a layer around those that cannot be made again alone."""
        if any(map(self._undrawn, inside)):
            for part, other in _made_alike(owner, inside):
                self._move_new_values(other, part, self._known)

    def _ask_builder(self, owner: Any, inside: list[Any]) -> None:
        """Asks a layer that builds those inside it what their weights start with."""
        if len(inside) == 1 or not _keras.says_how_to_build(owner):
            return
        if not any(map(self._undrawn, inside)):
            return
        make = partial(built_again, owner, self._keep)
        ghost = make()
        if ghost is None:
            return
        used, parts = set(self._known), list(held_alike(owner, ghost))
        moved, others = set[int](), dict[tuple[int, ...], dict[int, Any]]()
        for part, other in parts:
            if self._move_new_values(other, part, used):
                moved.add(address(part))
            used |= _keras.held_by_layers([other])

        def another(part: Any, *which: int) -> Any:
            if which not in others:
                drawn = self._with_other_draws(make, *which) or ghost
                others[which] = {address(a): b for a, b in held_alike(owner, drawn)}
            return others[which].get(address(part))

        copies = set(map(address, self._layers))
        for part, other in parts:
            # Data belong to the weights that this ghost gave, not to those of another.
            is_moved = moved.intersection(map(address, _keras.all_layers(part)))
            if is_moved and address(part) in copies:
                self._take_data(part, other, partial(another, part))

    def _tie(self, owner: Any, inside: list[Any]) -> None:
        """Lets variables start alike that do so when their owner is made.

        A constructor makes a target of a network, say. It may as well read trained
        weights from a file: so what is taken from it is who is like whom, no values.
        That is taken to be so whatever arguments the constructor was given.
        """
        if len(inside) == 1 or not _keras.writes_when_made(owner):
            return
        first: dict[Any, Any] = {}
        made = _made_alike(owner, inside) or _made_somehow_alike(owner, inside)
        for part, other in made:
            for mine, its in zip(_own(part), _own(other), strict=False):
                value = _keras.to_numpy(its)
                is_drawn = value.size > 1 and value.min() != value.max()
                if not is_drawn or _keras.own_name(mine) != _keras.own_name(its):
                    continue
                twin = first.setdefault(_bits(value), mine)
                is_alike = _keras.kind_of(twin) == _keras.kind_of(mine)
                if twin is not mine and is_alike and address(mine) not in self._settled:
                    mine.assign(twin.value)

        # Arrays for which the weights were noted.
        for part, other in made if first else ():
            notes = _keras.own_state(part), _keras.own_state(other)
            names = notes[0].keys() & notes[1].keys()
            for array, its in arrays_alike(*([x[n] for n in names] for x in notes)):
                twin = first.get(_bits(its))
                is_mine = address(array) not in self._shared and array.flags.writeable
                if twin is not None and is_mine and array.shape == its.shape:
                    array[...] = _keras.to_numpy(twin)

    def _take_data(self, layer: Any, ghost: Any, make: Remake) -> None:
        take_drawn_data(layer, ghost, make, self._shared)

    def _with_other_draws(self, make: Callable[[], Any], number: int, turn: int) -> Any:
        """Makes a ghost that draws other numbers than it would, for nobody to use.

        For one number it draws the same ones in each turn.
        """
        with _keras.unchanged(self._variables), seeded(Seeds(number)):
            return make()

    def _draw_beside(self, owner: Any) -> None:
        """Draws what a layer learns that no Keras variable holds."""
        backend = _backends.active()
        mine = backend.other_weights(owner)
        mine = {name: x for name, x in mine.items() if address(x) in self._left}
        ghost = constructed_again(owner) if mine else None
        found = {} if ghost is None else backend.other_weights(ghost)
        for name in mine.keys() & found.keys():
            if mine[name].shape == found[name].shape:
                backend.write(mine[name], found[name])
                self._left.discard(address(mine[name]))

    def _reset_modules(self, layer: Any) -> None:
        """Lets modules draw their weights that nobody around them can make again."""
        values = {address(_keras.raw_value(v)): v for v in self._undrawn(layer)}
        undrawn = self._left | values.keys()
        for value in _backends.active().reset_modules(layer, undrawn):
            self._left.discard(address(value))
            if address(value) in values:
                self._drawn.add(address(values[address(value)]))

    def _check(self, layer: Any) -> None:
        for variable in _own(layer):
            if address(variable) not in self._drawn:
                if _keras.is_quantized(layer):
                    raise cannot_quantize(layer, variable)
                raise _nobody_knows(
                    f"{layer.name}: {variable.path}",
                    "a variable made in `build()`, or a layer",
                    f"{type(layer).__name__}, which made it in `__init__` or was "
                    "handed it",
                    "make the variable in `build()`, give",
                )
        backend = _backends.active()
        for name, value in backend.other_weights(layer).items():
            # Buffers that nobody makes anew may be constants, and stay.
            if address(value) in self._left and backend.is_trained(value):
                raise _nobody_knows(
                    f"{layer.name}: {name}",
                    "a variable of Keras, or a layer",
                    f"{type(value).__name__} on {type(layer).__name__}",
                    "make it with `add_weight()` in `build()`, give",
                )

    def _undrawn(self, layer: Any) -> list[Any]:
        if _keras.is_quantized(layer):
            return []  # What its class makes starts as zeros.
        return [v for v in _own(layer) if address(v) not in self._drawn]

    def _move_new_values(self, source: Any, target: Any, known: set[int]) -> bool:
        made = [v for v in _own(source) if address(v) not in known]
        return self._move_values(source, target, made, self._undrawn(target))

    def _move_values(
        self, ghost: Any, layer: Any, sources: list[Any], targets: list[Any]
    ) -> bool:
        """Pairs variables in the same place, and others in order.

        Args:
            ghost: The layer that holds the new variables.
            layer: The layer whose variables are drawn.
            sources: The new variables.
            targets: Variables that have no new values yet.

        Returns:
            Whether any of them has one now.
        """
        if not targets:
            return False
        alike = variables_alike(layer, ghost)
        places = {address(a): b for a, b in alike if _signature(a) == _signature(b)}
        free = {address(source): source for source in sources}
        in_place = {key: free.pop(address(b), None) for key, b in places.items()}
        before = len(self._drawn)
        for target in targets:
            source = in_place.get(address(target))
            if source is None:
                wanted = _signature(target)
                fitting = (x for x in free.values() if _signature(x) == wanted)
                source = next(fitting, None)
            if source is not None:
                free.pop(address(source), None)
                target.assign(source.value)
                self._drawn.add(address(target))
        return len(self._drawn) > before


def _bits(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype.str, array.tobytes()


def _made_alike(
    owner: Any, inside: list[Any], make: Callable[[Any], Any] = _keras.made_again
) -> list[tuple[Any, Any]]:
    """Returns the layers in one, each with that in another that was made like it."""
    ghost = constructed_again(owner, make)
    others = [] if ghost is None else _keras.all_layers(ghost)
    is_alike = [type(x) for x in others] == [type(x) for x in inside]
    return list(zip(inside, others, strict=True)) if is_alike else []


def _made_somehow_alike(owner: Any, inside: list[Any]) -> list[tuple[Any, Any]]:
    """The same, whatever arguments a constructor needs, or as far as layers are alike.

    What is built when it is called has nothing inside yet when its owner is made.
    """
    made = _made_alike(owner, inside, _keras.made_somehow)
    for make in () if made else (_keras.made_again, _keras.made_somehow):
        ghost = constructed_again(owner, make)
        pairs = [] if ghost is None else held_alike(owner, ghost)
        made = made or [pair for pair in pairs if type(pair[0]) is type(pair[1])]
    return made


def _own(layer: Any) -> list[Any]:
    return _keras.own_variables(layer)


def _nobody_knows(where: str, expected: str, received: str, fix: str) -> CopyError:
    return CopyError(
        explain(
            "A variable cannot be drawn anew: nobody knows how it starts.",
            where=where,
            expected=f"{expected} that can be made again with "
            "`from_config(get_config())`",
            received=received,
            fix=f"{fix} the class a `get_config()`, or use `weights='copy'`",
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


def _signature(variable: Any) -> tuple[Any, ...]:
    return _keras.own_name(variable), _keras.kind_of(variable)


def learned_variables(layer: Any) -> list[Any]:
    """Returns the variables that `adapt()` has changed: data that cannot be drawn."""
    learned = _keras.learned_by_adapt(layer)
    ghost = built_again(layer, None) if learned else None
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
