"""Fits the layers of a new graph to other input shapes, where they stand.

The copy of a layer is held by others: by a wrapper around it, by a layer that reads
its weights. So a layer that meets another shape is not exchanged but forgets its
variables and is built again. Variables that keep their shape stay the same ones.
What cannot follow, because it was used before or is data, is refused.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from . import _keras, _refit
from ._errors import ShapeError, explain
from ._fresh import cannot_quantize, learned_variables
from ._ghosts import ghost_with_parts
from ._identity import address
from ._transplant import counterparts

# The arguments of a call, by position and by name.
Call = tuple[Any, dict[str, Any]]


class FitInPlace:
    """Fits layers one after the other, as a graph calls them.

    Args:
        made: For the id of each part of the old model what takes its place.
    """

    def __init__(self, made: dict[int, Any]) -> None:
        self._made = made
        self._copies: list[Any] = []
        self._users: dict[int, str] = {}
        # For the id of each layer that calls have reached the layer that was called.
        self._settled: dict[int, Any] = {}
        self._rebuilt: set[int] = set()

    def note_copies(self, operations: list[Any]) -> None:
        """Notes the operations that the graph is going to call."""
        self._copies += [x for x in operations if isinstance(x, _keras.Layer)]

    def note_use(self, variable: Any, where: str) -> None:
        """Notes that a call was given what takes a variable's place."""
        self._users.setdefault(address(variable), where)

    def note_call(self, layer: Any) -> None:
        """Notes that a layer was called: it must stay as it is."""
        if isinstance(layer, _keras.Layer):
            for part in _keras.all_layers(layer):
                self._settled.setdefault(address(part), layer)

    def has_changed(self, layer: Any) -> bool:
        """Tells whether something in a layer was built for another shape."""
        if not self._rebuilt or not isinstance(layer, _keras.Layer):
            return False
        return any(address(part) in self._rebuilt for part in _keras.all_layers(layer))

    def fit(self, old: Any, new: Any, before: Call, now: Call, where: str) -> Any:
        """Returns the layer with weights for other input shapes.

        That is the layer itself, unless it can only be made again as a whole.

        Args:
            old: The layer of the old model.
            new: The layer in its place, which the graph has not called yet.
            before: What the old one was called with.
            now: What the new one is going to be called with.
            where: The layer, for messages.
        """
        models = _keras.Functional | _keras.Sequential
        if not isinstance(new, _keras.Layer) or isinstance(new, models):
            return new
        if not new.built or not new.weights:
            return new
        args, kwargs = _refit.detach(*now)
        with _keras.quiet_globals(draws=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._check_settled(old, new, before, now, where)
            trial = self._trial(new, args, kwargs)
            if trial is not None and _refit.is_alike(trial.ghost, new):
                return new
            holder = self._settled.get(address(new))
            if holder is not None:
                raise _cannot_follow(new, holder, where)
            if trial is not None and _refit.is_complete(trial.ghost, new):
                self._build_again(new, trial.rebuilt, args, kwargs, where)
                fitted = new
            else:
                fitted = self._made_again(new, args, kwargs, where)
        if fitted.built:
            self._follow(old, fitted, where)
        return fitted

    def _follow(self, old: Any, fitted: Any, where: str) -> None:
        """Lets the parts of a layer be followed by those of the fitted one."""
        for part, other in counterparts(old, fitted):
            user = self._users.get(address(part))
            if user is not None and self._made.get(address(part)) is not other:
                raise _used_before(part, user, where)
            self._made[address(part)] = other

    def _check_settled(
        self, old: Any, new: Any, before: Call, now: Call, where: str
    ) -> None:
        """Refuses a layer that needs a part for one shape that was built for another.

        Not every layer tells its parts' shapes when it is called on symbolic tensors.
        """
        if not any(address(part) in self._settled for part in _keras.all_layers(new)):
            return
        unfit = _unfit_parts(new, now)
        strange = [part for part in unfit if address(part) in self._settled]
        # A part may always have been used on other shapes than it was built for.
        if strange and not _unfit_parts(old, before):
            holder = self._settled[address(strange[0])]
            raise _cannot_follow(new, holder, where)

    # --- trials ----------------------------------------------------------------

    def _trial(self, layer: Any, args: Any, kwargs: dict[str, Any]) -> _Trial | None:
        """Builds a ghost of the layer; parts that it does not build stay."""
        settled = set(self._settled) - {address(layer)}
        trial = _try(layer, args, kwargs, settled)
        if trial is None:
            # It may read layers that others call and that it does not build.
            shared = set(self._shared(layer)) - {address(layer)}
            settled |= shared
            trial = _try(layer, args, kwargs, settled) if shared else None
        while trial is not None and trial.left_out:
            settled |= {address(part) for part in trial.left_out}
            trial = _try(layer, args, kwargs, settled)
        return trial

    def _shared(self, layer: Any) -> dict[int, Any]:
        """Returns the ids of what a layer and others hold, each with one of those."""
        inside = {address(x) for x in _keras.all_layers(layer)}
        found: dict[int, Any] = {}
        for other in self._copies:
            if other is not layer:
                theirs = {address(x) for x in _keras.all_layers(other)}
                found.update(dict.fromkeys(inside & theirs, other))
        return found

    # --- building --------------------------------------------------------------

    def _build_again(
        self,
        layer: Any,
        parts: list[Any],
        args: Any,
        kwargs: dict[str, Any],
        where: str,
    ) -> None:
        """Builds a layer again, and those parts of it that its call builds."""
        learned = [(x, v) for x in parts for v in learned_variables(x)]
        before = {address(v) for part in parts for v in _keras.own_variables(part)}
        with _variables_kept(parts), _keras.no_traces(_keras.all_layers(layer)):
            for part in parts:
                _keras.forget_variables(part)
                if _refit.has_states(part):
                    part.states = None
            with _quantized_again(parts):
                layer(*args, **kwargs)
        self._rebuilt |= {address(part) for part in parts}
        after = {address(v) for part in parts for v in _keras.own_variables(part)}
        for part, variable in learned:
            if address(variable) not in after:
                raise _loses_data(part, variable, where)
        inside = {address(x) for x in _keras.all_layers(layer)}
        for other in self._copies:
            for part in _keras.all_layers(other):
                if address(part) in inside:
                    continue
                for variable in _keras.own_variables(part):
                    if address(variable) in before - after:
                        raise _tied(layer, part, variable, where)
                _keras.retrack(part)

    def _made_again(
        self, layer: Any, args: Any, kwargs: dict[str, Any], where: str
    ) -> Any:
        """Makes a layer from its configuration that cannot be built again."""
        fitted = _keras.made_again(layer)
        if fitted is None:
            return layer
        for other in self._shared(layer).values():
            raise _cannot_follow(layer, other, where)
        for part in filter(_keras.is_quantized, _keras.all_layers(layer)):
            raise cannot_quantize(part, _keras.own_variables(part)[0])
        for part in _keras.all_layers(layer):
            for variable in learned_variables(part):
                raise _loses_data(part, variable, where)
        with suppress(Exception), _keras.no_traces(_keras.all_layers(fitted)):
            fitted(*args, **kwargs)  # The graph's call will raise it again.
        return fitted


@dataclasses.dataclass(frozen=True)
class _Trial:
    """What became of a ghost.

    Attributes:
        ghost: The ghost, built for what it was called with.
        rebuilt: The layers whose ghosts were built again.
        left_out: The layers that were built, and whose ghosts were not.
    """

    ghost: Any
    rebuilt: list[Any]
    left_out: list[Any]


def _try(
    layer: Any, args: Any, kwargs: dict[str, Any], settled: set[int]
) -> _Trial | None:
    """Calls a ghost of a layer; returns None if that fails."""
    ghost, pairs = ghost_with_parts(layer, settled=settled)
    forgotten = [
        (old, part)
        for old, part in pairs
        if isinstance(old, _keras.Layer) and address(old) not in settled
    ]
    for _, part in forgotten:
        if _refit.has_states(part):
            part.states = None
    try:
        ghost(*args, **kwargs)
    except Exception:  # Whatever a user's layer raises: this way is closed.
        return None
    for old, part in pairs:
        if address(old) in settled and _ids(old) != _ids(part):
            return None  # It was built a second time.
    rebuilt = [old for old, part in forgotten if part.built]
    left_out = [old for old, part in forgotten if old.built and not part.built]
    return _Trial(ghost, rebuilt, left_out)


def _unfit_parts(layer: Any, call: Call) -> list[Any]:
    """Returns the layers in a layer that a call would build with other weights."""
    args, kwargs = _refit.detach(*call)
    ghost, pairs = ghost_with_parts(layer)
    try:
        ghost(*args, **kwargs)
    except Exception:  # Whatever a user's layer raises: it says nothing.
        return []
    layers = [pair for pair in pairs if isinstance(pair[0], _keras.Layer)]
    return [a for a, b in layers if a.built and b.built and not _is_equal(a, b)]


def _is_equal(layer: Any, ghost: Any) -> bool:
    return _refit.weights(layer) == _refit.weights(ghost)


def _ids(layer: Any) -> list[int]:
    return [address(v) for v in _keras.own_variables(layer)]


@contextmanager
def _variables_kept(layers: list[Any]) -> Iterator[None]:
    """A context in which layers get back those variables that would be made alike.

    Others hold them: calls of the graph, and layers that share them.
    """
    for layer in layers:
        _keras.reuse_variables(layer, _keras.own_variables(layer))
    try:
        yield
    finally:
        for layer in layers:
            _keras.stop_reusing(layer)


@contextmanager
def _quantized_again(layers: list[Any]) -> Iterator[None]:
    """A context in which quantized layers without variables are built with floats.

    What `build()` makes for a quantized layer is zeros. A layer that needs data to be
    quantized is not copied in the first place.
    """
    found = []
    for layer in filter(_keras.is_quantized, layers):
        found.append((layer, layer.quantization_mode, _keras.quantization_of(layer)))
        _keras.forget_quantization(layer)
    yield
    for layer, mode, config in found:
        _keras.quantize(layer, mode, config)


def _cannot_follow(layer: Any, other: Any, where: str) -> ShapeError:
    return ShapeError(
        explain(
            "A layer would have to be built for another shape, and another layer "
            "that has a part in common with it cannot follow.",
            where=where,
            expected="an input shape for which both can keep, or share, their weights",
            received=f"{type(layer).__name__} {layer.name!r} on another shape, with "
            f"parts of {type(other).__name__} {other.name!r}",
            fix="keep this shape, or make the model again for the new one",
        )
    )


def _tied(layer: Any, other: Any, variable: Any, where: str) -> ShapeError:
    return _must_change(
        "A variable that two layers share would have to change its shape.",
        f"{where}: {variable.path}",
        f"{type(layer).__name__} {layer.name!r} on another shape, tied to "
        f"{type(other).__name__} {other.name!r}",
    )


def _used_before(variable: Any, user: str, where: str) -> ShapeError:
    return _must_change(
        "A variable of a layer changes its shape after another call has used it.",
        f"{where}: {variable.path}",
        f"another shape, and a call in {user} that was made before the layer's own",
    )


def _must_change(what: str, where: str, received: str) -> ShapeError:
    return ShapeError(
        explain(
            what,
            where=where,
            expected="an input shape for which the variable can stay as it is",
            received=received,
            fix="keep this shape, or make the model again for the new one",
        )
    )


def _loses_data(layer: Any, variable: Any, where: str) -> ShapeError:
    return ShapeError(
        explain(
            "A layer would lose what `adapt()` learned: it is data for one shape.",
            where=f"{where}: {variable.path}",
            expected="an input shape for which the layer can stay as it is",
            received=f"{type(layer).__name__} {layer.name!r} on another shape",
            fix="keep this shape, or make the model with a layer that is adapted to "
            "the new one",
        )
    )
