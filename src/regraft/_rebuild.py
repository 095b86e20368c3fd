"""Lets a built layer follow the shape of its input, on the weights that it has.

What a layer works out in `build()` may depend on the shape: weights, numbers, tables.
A *ghost*, a copy of the layer that has forgotten its variables, is built for the new
shape; no memory is taken for it. If its weights have the shapes of the layer's own,
these fit. Other things that came out differently are taken over if a ghost that is
built for the old shape has what the layer has: then they follow from the shape alone.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from typing import Any

import keras

from . import _keras
from ._data import array_shape, is_data, same_data
from ._ghosts import ghost_with_parts, ids_inside
from ._pairing import paired_variables
from ._refit import quantize_alike, weights
from ._rows import run_before, with_rows
from ._shape_checks import (
    Arguments,
    Call,
    cannot_follow,
    first_line,
    move_shapes,
    refusal,
)


def rebuild(call: Call, *, is_kept: bool, has_failed: bool) -> bool:
    """Brings a layer to where `build()` would have brought it for another shape.

    Args:
        call: The call of the layer, with the new shapes.
        is_kept: Whether the layer belongs to the original as well.
        has_failed: Whether the layer could not be called as it is.

    Returns:
        Whether the layer may have changed.
    """
    layer = call.operation
    if not has_failed:
        _trace(call)
    if not is_kept:
        _renew_states(call)
    if not _keras.has_build(layer):
        return False
    try:
        new = _ghost(layer, call.now)
    except Exception as error:  # Whatever a user's layer raises.
        if has_failed:
            return False
        if _can_be_built(layer, call.before):
            raise cannot_follow(call, error) from error
        if not layer.weights:
            return False
        found = _ghost_on_parts(layer, call.now)
        if found is None:
            raise refusal(
                call,
                "it cannot be built again to see whether its weights fit: "
                f"{type(error).__name__}: {first_line(error)}",
            ) from error
        new = found
    _compare_weights(call, new)
    if not is_kept:
        _note_shapes(call, new)
    changes = _changes(layer, new)
    if not changes:
        return has_failed
    try:
        old = _ghost(layer, call.before)
    except Exception:  # It can be built for the new shape only.
        old = None
    followed = {} if old is None else {(i, n): v for i, n, v in _all(old)}
    own = {(i, n): v for i, n, v in _all(layer)}
    parts, is_renewed = _keras.all_layers(layer), has_failed
    for index, name, value in changes:
        mine, was = own[index, name], followed.get((index, name))
        if not same_data(mine, was):
            if array_shape(mine) != array_shape(value):
                raise refusal(
                    call,
                    f"its `{name}` of shape {array_shape(mine)} would have to be of "
                    f"shape {array_shape(value)}, and nobody knows how it came about",
                )
        elif is_kept:
            raise refusal(
                call,
                f"its `{name}` would have to change, and `keep=` shares it with the "
                "original",
                "let it be copied",
            )
        else:
            vars(parts[index])[name] = value
            is_renewed = True
    return is_renewed


def _trace(call: Call) -> None:
    """Runs the code of a layer, whatever shapes it claims.

    It must run, and must not let the batch swallow the change (`reshape(x, (-1, 64))`
    of a larger `x`). If it does not run on the old shape either, that says nothing.
    Keras's own layers claim what is true, unless they are given arrays.
    """
    layer = call.operation
    sizes = [n for shape in call.shapes(call.now) for n in shape[1:]]
    if None in sizes or (_keras.is_keras_code(layer) and not call.takes_arrays):
        return

    def trace(arguments: Arguments) -> list[Any]:
        return _keras.trace_call(layer, *arguments)

    before = run_before(trace, call.before, call.now)
    if before is None:
        return
    try:
        now = trace(with_rows(call.now, before.count))
    except Exception as error:
        raise cannot_follow(call, error) from error
    rows = before.mixed(call.now, now)
    if rows is not None:
        raise refusal(
            call,
            f"of {before.expected(call.now)} rows it makes {rows}: a fixed shape in "
            "its code lets the batch make up for the change",
            "let the code of the layer take sizes from `ops.shape(x)`, or -1 for "
            "the axis that is to follow",
        )


def _renew_states(call: Call) -> None:
    """Gives stateful RNNs states for another batch size."""
    for layer in _keras.all_layers(call.operation):
        states = getattr(layer, "states", None)
        if not isinstance(layer, keras.layers.RNN) or not layer.stateful or not states:
            continue
        batch = call.shapes(call.now)[0][0]
        if batch is None:
            raise refusal(
                call,
                "a stateful layer needs to know the batch size",
                "pass `keras.Input(batch_shape=...)`",
            )
        if keras.tree.flatten(states)[0].shape[0] != batch:
            _keras.renew_states(layer, batch)


def _can_be_built(layer: Any, arguments: Arguments) -> bool:
    try:
        _ghost(layer, arguments)
    except Exception:  # Whatever a user's layer raises.
        return False
    return True


def _ghost_on_parts(layer: Any, arguments: Arguments) -> Any:
    """Builds a layer again that reads those inside it, which keep their variables."""
    with suppress(Exception):  # Whatever a user's layer raises.
        return _ghost(layer, arguments, settled=ids_inside(layer))
    return None


def _ghost(layer: Any, arguments: Arguments, settled: Container[int] = ()) -> Any:
    ghost, pairs = ghost_with_parts(layer, settled=settled)
    operations = [operation for _, operation in pairs]
    for operation in operations:
        if isinstance(operation, _keras.Layer):
            _keras.set_input_rule(operation, None)  # What `build()` allowed before.
    args, kwargs = arguments
    try:
        with _keras.no_memory():
            ghost(*args, **kwargs)
            quantize_alike(ghost, layer)
    except Exception:  # It makes a variable from a value, which needs memory.
        for operation in operations:
            if getattr(operation, "states", None):
                operation.states = None  # They are the layer's own, and stay as is.
        ghost(*args, **kwargs)
        quantize_alike(ghost, layer)
    return ghost


def _note_shapes(call: Call, ghost: Any) -> None:
    """Lets the shapes follow that layers were built for, and what they allow."""
    parts, others = _keras.all_layers(call.operation), _keras.all_layers(ghost)
    if [type(x) for x in parts] != [type(x) for x in others]:
        return
    shapes = call.shapes(call.before), call.shapes(call.now)
    moved = dict(zip(*shapes, strict=True))
    for part, other in zip(parts, others, strict=True):
        own, new = _keras.build_shapes(part), _keras.build_shapes(other)
        if own is None or new is None or own.keys() != new.keys():
            continue
        if part is call.operation:  # It may have been built for any shape.
            new = {name: move_shapes(value, moved) for name, value in own.items()}
        _keras.set_build_shapes(part, new)
        rule = _keras.input_rule(other)
        if rule is not None:
            _keras.set_input_rule(part, rule)


def _compare_weights(call: Call, ghost: Any) -> None:
    layer = call.operation
    needed, own = weights(ghost), weights(layer)
    if not needed - own:
        return
    pairs = paired_variables(layer, ghost)
    other = [
        f"{mine.path} of shape {tuple(mine.shape)} would have to be of shape "
        f"{tuple(new.shape)}"
        for mine, new in pairs
        if tuple(mine.shape) != tuple(new.shape)
    ]
    raise refusal(call, "; ".join(other) or "it would have to have other weights")


# --- what build() left on a layer ----------------------------------------------


def _changes(layer: Any, ghost: Any) -> list[tuple[int, str, Any]]:
    own = {(i, n): v for i, n, v in _all(layer)}
    return [
        (index, name, value)
        for index, name, value in _all(ghost)
        if (index, name) in own and not same_data(own[index, name], value)
    ]


def _all(layer: Any) -> list[tuple[int, str, Any]]:
    """Lists the plain data of a layer and of those inside it, by position."""
    return [
        (index, name, value)
        for index, part in enumerate(_keras.all_layers(layer))
        for name, value in vars(part).items()
        if name not in _keras.BUILD_NOTES and is_data(value)
    ]
