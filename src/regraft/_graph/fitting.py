"""Gives a layer variables of other shapes, and what it can keep of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from .. import _keras
from .._errors import MismatchError, UsageError, explain
from .._identity import address
from .._pairing import named_alike
from .._refit import quantize_alike, refit, shapes_of_states, states
from .._rename import rename_layer

# What becomes of a variable whose shape must change. A function is given the path,
# the old value and the newly drawn one, and returns the value.
FitFunction = Callable[[str, np.ndarray[Any, Any], np.ndarray[Any, Any]], Any]
Mismatch = Literal["error", "fresh", "fit"] | FitFunction


def check(mismatch: Any) -> None:
    """Refuses what is not a way to deal with other shapes."""
    if callable(mismatch) or mismatch in ("error", "fresh", "fit"):
        return
    raise UsageError(
        explain(
            "Unknown value for `mismatch`.",
            where="argument `mismatch`",
            expected="'error', 'fresh', 'fit' or a function of path, old value and "
            "newly drawn value",
            received=repr(mismatch),
            fix="choose one of these",
        )
    )


class Fitting:
    """Fits layers one after the other, and notes what became of their variables.

    Args:
        mismatch: What becomes of variables whose shape must change.
    """

    def __init__(self, mismatch: Mismatch) -> None:
        check(mismatch)
        self._mismatch = mismatch
        self._refused: list[str] = []
        self._refused_numbers: list[str] = []
        # The ids of old variables that mean something only in a quantized layer.
        self._quantized: set[int] = set()
        self.fates: dict[int, Any] = {}
        self.sources: dict[int, Any] = {}

    def fit(
        self, layer: Any, args: Any, kwargs: dict[str, Any], *, keep_inside: bool
    ) -> Any:
        """Returns the layer, or one like it with variables for what it is given.

        Args:
            layer: The layer.
            args: What it is going to be called with.
            kwargs: What it is going to be called with, by keyword.
            keep_inside: Whether layers inside it were edited, and must stay.
        """
        fitted = refit(layer, args, kwargs, keep_inside=keep_inside)
        if fitted is not layer:
            if not fitted.built:
                with _keras.quiet_globals():
                    fitted(*args, **kwargs)
                    quantize_alike(fitted, layer)
                _keras.forget_calls(fitted)
            _name_alike(layer, fitted)
            pairs = list(named_alike(layer.variables, fitted.variables))
            _number_alike(fitted, pairs)
            self._note_quantized(layer)
            self._carry_over(pairs)
            if shapes_of_states(layer) == shapes_of_states(fitted):
                for old, new in zip(states(layer), states(fitted), strict=True):
                    new.assign(np.array(_keras.to_numpy(old)))
        return fitted

    def take_over(self, old: Any, new: Any, memo: dict[int, Any]) -> None:
        """Gives a new layer the weights of the one whose place it has."""
        pairs = list(named_alike(old.variables, new.variables))
        self._note_quantized(old)
        self._carry_over(pairs)
        for source, variable in pairs:
            if source is not None:
                self.sources[address(variable)] = source

    def _note_quantized(self, layer: Any) -> None:
        for part in filter(_keras.is_quantized, _keras.all_layers(layer)):
            self._quantized |= {address(v) for v in _keras.own_variables(part)}

    def _carry_over(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        for old, new in pairs:
            if old is None:
                self.fates[address(new)] = "fresh"
            elif self._loses_its_meaning(old, new):
                self._refused_numbers.append(_change(old, new))
            elif tuple(old.shape) == tuple(new.shape):
                # A copy: on JAX two variables would hold the one buffer.
                new.assign(np.array(_keras.to_numpy(old)))
                self.fates[address(new)] = "copied"
            else:
                self._settle(old, new)

    def _loses_its_meaning(self, old: Any, new: Any) -> bool:
        """Tells whether whole numbers would lose their scale, or be packed anew.

        Nor can such numbers be drawn. A function may know what to do.
        """
        if address(old) not in self._quantized:
            return False
        if _keras.standard_dtype(old) != _keras.standard_dtype(new):
            return True
        is_same = tuple(old.shape) == tuple(new.shape)
        return not is_same and not callable(self._mismatch)

    def _settle(self, old: Any, new: Any) -> None:
        if self._mismatch == "error":
            self._refused.append(_change(old, new))
            return
        self.fates[address(new)] = "fresh"
        if self._mismatch == "fresh":
            return
        before, drawn = _keras.to_numpy(old), np.array(_keras.to_numpy(new))
        if callable(self._mismatch):
            value = np.asarray(self._mismatch(old.path, before, drawn))
            if value.shape != drawn.shape:
                raise UsageError(
                    explain(
                        "The function given as `mismatch` returned an array of a "
                        "wrong shape.",
                        where=old.path,
                        expected=f"{drawn.shape}",
                        received=f"{value.shape}",
                        fix="return an array like the third argument",
                    )
                )
        else:
            value = overlap(before, drawn)
        new.assign(value)
        self.fates[address(new)] = "fitted"

    def raise_if_refused(self, model: str) -> None:
        """Raises an error that lists all variables whose shape had to change."""
        if self._refused_numbers:
            raise MismatchError(
                explain(
                    f"{len(self._refused_numbers)} variable(s) of quantized layers do "
                    "not fit any more.",
                    where=model,
                    expected="quantized variables that keep their shapes and types",
                    received="; ".join(self._refused_numbers),
                    fix="edit the model before it is quantized; for other shapes a "
                    "function as `mismatch` may say what the numbers are",
                )
            )
        if not self._refused:
            return
        raise MismatchError(
            explain(
                f"{len(self._refused)} variable(s) do not fit any more.",
                where=model,
                expected="variables that keep their shapes",
                received="; ".join(self._refused),
                fix='build with `mismatch="fit"` to keep the slices that overlap, '
                '"fresh" to draw these variables anew, or a function',
            )
        )


def _change(old: Any, new: Any) -> str:
    """Returns what would become of a variable, in words."""
    types = _keras.standard_dtype(old), _keras.standard_dtype(new)
    said = [f" {kind}" if types[0] != types[1] else "" for kind in types]
    return f"{old.path} {tuple(old.shape)}{said[0]} -> {tuple(new.shape)}{said[1]}"


def _number_alike(layer: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Numbers variables without a name of their own as they were numbered."""
    for old, new in pairs:
        if old is not None:
            _keras.set_number(new, old)
    for part in _keras.all_layers(layer):
        _keras.retrack(part)


def _name_alike(old: Any, new: Any) -> None:
    """Names the layers inside a layer that was made again as they were named."""
    pairs = list(
        zip(_keras.all_layers(old), _keras.all_layers(new), strict=False),
    )
    if all(type(a) is type(b) for a, b in pairs):
        for a, b in pairs:
            if a.name != b.name:
                rename_layer(b, a.name)


def equal_pairs(old: Any, new: Any) -> list[tuple[Any, Any]]:
    """Returns the variables of two layers, if one goes on with what the other knew.

    It does if variables are equal that are not as variables begin: a new bias of zeros
    may meet another one by chance.
    """
    if len(old.variables) != len(new.variables):
        return []
    pairs, goes_on = [], False
    for a, b in zip(old.variables, new.variables, strict=True):
        has_one_name = _keras.own_name(a) == _keras.own_name(b)
        if has_one_name and tuple(a.shape) == tuple(b.shape):
            one, other = _keras.to_numpy(a), _keras.to_numpy(b)
            if np.array_equal(one, other):
                pairs.append((a, b))
                goes_on |= not (one == 0).all() and not (one == 1).all()
    return pairs if goes_on else []


def overlap(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> Any:
    """Puts the part of an array that two shapes have in common into another array."""
    if old.ndim != new.ndim:
        return new
    common = tuple(
        slice(0, min(m, n)) for m, n in zip(old.shape, new.shape, strict=True)
    )
    new = new.copy()
    new[common] = old[common]
    return new
