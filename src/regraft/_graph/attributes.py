"""Sets attributes of layers, as if they had been made with them.

Setting `rate` on a layer may not be enough: its constructor, or its `build()`, may
have made something of it. So a layer is made twice from its configuration, with the
old value and with the new: what differs between the two is what must be set.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import keras
import numpy as np

from .. import _keras
from .._errors import UsageError, UsageTypeError, did_you_mean, explain
from .._identity import address
from .edit import touched
from .places import by_part
from .splice import Place
from .table import Table

_ON_VARIABLES = ("regularizer", "constraint", "trainable")


def set_attributes(
    table: Table, places: Sequence[Place], attributes: dict[str, Any]
) -> Table:
    """Returns the table with attributes of parts changed."""
    if not attributes:
        raise UsageError(
            explain(
                "`set` must be told what to set.",
                where=", ".join(place.path for place in places[:5]),
                expected="attributes by name",
                received="none",
                fix="pass for example `trainable=False`",
            )
        )
    for place in by_part(places):
        part = table[place.part]
        # All settings at once: one may undo another, or depend on it.
        settings = {**part.settings, **attributes}
        found = changes(part.operation, settings, place.path)
        table = table.having(place.part, changes=found, settings=settings)
    return touched(table, [place.part for place in by_part(places)], verb="set")


def changes(
    layer: Any, attributes: dict[str, Any], where: str, *, is_built: bool = True
) -> dict[str, Any]:
    """Returns all that must be set on a layer, by the way to it.

    Args:
        layer: The layer.
        attributes: What its user would set, by name.
        where: The path of the layer, for messages.
        is_built: Whether it stays as it is built. Otherwise it is going to be built
            once more, for what is set.
    """
    direct: dict[str, Any] = {}
    through_config: dict[str, Any] = {}
    config = _config(layer)
    for name, value in attributes.items():
        found = getattr(layer, name, None)
        if name == "name":
            raise UsageError(
                explain(
                    "`set` does not change names.",
                    where=where,
                    expected="another attribute",
                    received=f"name={value!r}",
                    fix=f"use `rename({where!r}, {value!r})`",
                )
            )
        if isinstance(found, _keras.Variable):
            direct[name] = _value(found, value, f"{where}.{name}")
        elif name == "trainable" or (hasattr(layer, name) and name not in config):
            direct[name] = _meant(layer, config, name, value)
        elif name in config:
            through_config[name] = value
        else:
            names = [*config, *(n for n in vars(layer) if not n.startswith("_"))]
            raise UsageError(
                explain(
                    f"{type(layer).__name__} has no attribute {name!r}.",
                    where=where,
                    expected=", ".join(sorted(set(names))),
                    received=repr(name),
                    fix=f"name one of these.{did_you_mean(name, names)}",
                )
            )
    if through_config:
        direct.update(_derived(layer, config, through_config, where, is_built))
    return direct


def _config(layer: Any) -> dict[str, Any]:
    if isinstance(layer, _keras.Layer) and not _keras.has_trusted_config(layer):
        return {}
    try:
        return dict(layer.get_config())
    except Exception:  # Whatever a user's layer raises: it has none.
        return {}


def _value(variable: Any, value: Any, where: str) -> Any:
    array = np.array(value)
    if array.shape != tuple(variable.shape):
        raise UsageError(
            explain(
                "The array has a wrong shape.",
                where=where,
                expected=f"{tuple(variable.shape)}",
                received=f"{array.shape}",
                fix="pass an array of the variable's shape",
            )
        )
    return array


def _like(found: Any, value: Any) -> Any:
    """Returns a value in the form that an attribute has: a function for its name."""
    if isinstance(value, str) and callable(found) and not isinstance(found, type):
        return keras.activations.get(value)
    return value


def _meant(layer: Any, config: dict[str, Any], name: str, value: Any) -> Any:
    """Returns what a text means for an attribute that the configuration lacks.

    Some arguments are taken by every constructor, and told by few.
    """
    if isinstance(value, str):
        with _keras.quiet_globals(), suppress(Exception):
            made = getattr(
                _keras.made_from(layer, {**config, name: value}, is_built=False), name
            )
            if callable(made):
                return made
    return _like(getattr(layer, name, None), value)


def _derived(
    layer: Any,
    config: dict[str, Any],
    new: dict[str, Any],
    where: str,
    is_built: bool,
) -> dict[str, Any]:
    def made(config: dict[str, Any]) -> Any:
        return _keras.made_from(layer, dict(config), is_built=is_built)

    with _keras.quiet_globals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            before, again = made(config), made(config)
        except Exception:  # It cannot be made again: what was asked for, then.
            return {
                name: _like(getattr(layer, name, None), v) for name, v in new.items()
            }
        try:
            after = made({**config, **new})
        except Exception as error:
            raise UsageTypeError(
                explain(
                    f"{type(layer).__name__} cannot be made with these values.",
                    where=where,
                    expected="values that its constructor takes",
                    received=f"{new}: {str(error).strip().splitlines()[0][:200]}",
                    fix="pass other values, or replace the layer",
                )
            ) from error
    noise = dict(_differences(before, again))
    found = {
        way: value
        for way, value in _differences(before, after)
        if way not in noise or way in new
    }
    for way, value in found.items():
        if value is _OTHER_DTYPE:
            raise _casts_variables(layer, new, where)
        if value is _OTHER_PARTS:
            raise UsageError(
                explain(
                    f"{type(layer).__name__} holds other layers with these values.",
                    where=f"{where}: {way}",
                    expected="values with which it holds the same layers",
                    received=f"{new}",
                    fix="replace the layer by a new one",
                )
            )
    return found


def _casts_variables(layer: Any, new: dict[str, Any], where: str) -> UsageError:
    said = ", ".join(f"{name}={value!r}" for name, value in new.items())
    return UsageError(
        explain(
            "`set` does not cast variables.",
            where=where,
            expected="values with which the variables keep their dtype",
            received=f"{said} for a {type(layer).__name__}",
            fix=f"build the model, and use `regraft.clone(model, dtype={{{where!r}: "
            "...})`, which checks that the values fit",
        )
    )


_OTHER_PARTS: Any = object()
_OTHER_DTYPE: Any = object()


def _differences(one: Any, other: Any, way: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the way to each attribute that differs, and its value in the other."""
    seen: set[int] = set()
    stack = [(one, other, way)]
    while stack:
        a, b, here = stack.pop()
        if address(a) in seen:
            continue
        seen.add(address(a))
        mine, theirs = _keras.own_attributes(a), _keras.own_attributes(b)
        for name, value in theirs.items():
            there = f"{here}{name}"
            was = mine.get(name, _OTHER_PARTS)
            if isinstance(value, _keras.Variable) and isinstance(was, _keras.Variable):
                if _keras.standard_dtype(was) != _keras.standard_dtype(value):
                    yield there, _OTHER_DTYPE
                for about in _ON_VARIABLES:
                    x, y = getattr(was, about, None), getattr(value, about, None)
                    if not _equal(x, y):
                        yield f"{there}.{about}", y
                continue
            pairs = _layer_pairs(was, value, there)
            if pairs is None:
                yield there, _OTHER_PARTS
            elif pairs:
                stack += pairs
            elif not _equal(was, value) and not isinstance(value, _keras.Variable):
                yield there, value


def _layer_pairs(was: Any, value: Any, way: str) -> list[tuple[Any, Any, str]] | None:
    """Returns the layers inside an attribute next to each other; None if others."""
    if isinstance(value, _keras.Layer) or isinstance(was, _keras.Layer):
        if type(was) is not type(value):
            return None
        return [(was, value, f"{way}.")]
    if not isinstance(value, list | tuple) or not isinstance(was, list | tuple):
        return []
    if not any(isinstance(x, _keras.Layer) for x in [*was, *value]):
        return []
    if [type(x) for x in was] != [type(x) for x in value]:
        return None
    pairs = enumerate(zip(was, value, strict=True))
    return [(a, b, f"{way}.{i}.") for i, (a, b) in pairs if isinstance(a, _keras.Layer)]


def _equal(one: Any, other: Any, depth: int = 0) -> bool:
    """Tells whether two values were made of the same arguments."""
    if one is other:
        return True
    if type(one) is not type(other) or depth > 6:
        return False
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_equal(a, b, depth + 1) for a, b in pairs)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _equal(one[key], other[key], depth + 1) for key in one
        )
    if isinstance(one, str | bytes | int | float | complex | set | frozenset):
        return bool(one == other)
    if keras.ops.is_tensor(one):
        return bool(np.array_equal(_keras.to_numpy(one), _keras.to_numpy(other)))
    if isinstance(one, _keras.SeedGenerator):  # Its name is numbered.
        return _keras.seed_of(one) == _keras.seed_of(other)
    if isinstance(one, _keras.Variable):
        return tuple(one.shape) == tuple(other.shape)
    if hasattr(one, "get_config"):
        try:
            return bool(one.get_config() == other.get_config())
        except Exception:  # Not comparable: they were made separately.
            return False
    if hasattr(one, "__dict__") and not callable(one):
        return _equal(vars(one), vars(other), depth + 1)
    return False
