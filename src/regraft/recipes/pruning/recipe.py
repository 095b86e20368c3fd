"""The recipe that deletes channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import _keras
from ..._errors import UsageError, UsageTypeError, explain
from .._common import as_built, exchange, no_match
from .cut import Kept
from .flow import Clash, Flow, Frame
from .table import makes_channels
from .weighted import size_of


def prune_channels(
    model: Any, where: Any, channels: Any, *, together: bool = False
) -> Any:
    """Deletes channels of layers, and all that follows from it in other layers.

    A channel goes with its weights, its batch statistics and all that the layers
    behind it do with it. The new model computes what the old one would if the deleted
    channels were zero where they are summed over. Channels of the last layer are
    missing in the output.

    Args:
        model: A model or its graph.
        where: The layers: convolutions, `Dense`, `EinsumDense`, `Embedding`.
        channels: The numbers of the channels, or a function that is given a layer and
            returns them.
        together: Whether channels that are added to these, or multiplied by them, may
            be deleted in the layers that make them, too. If not, that is an error,
            which names these layers.

    Returns:
        A new model with fewer weights.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(9, name="a"),
    ...     keras.layers.BatchNormalization(), keras.layers.Dense(2)])
    >>> new = regraft.recipes.prune_channels(model, "a", [0, 5])
    >>> [layer.output.shape for layer in new.layers]
    [(None, 7), (None, 7), (None, 2)]
    """
    found = as_built(model)
    chosen = _chosen(found, where, channels)
    while True:
        flow = Flow(chosen)
        try:
            flow.run(Frame(found), (None,) * len(found.inputs))
            break
        except Clash as clash:
            if not together:
                raise _must_match(clash) from None
            for layer, _, kept in clash.makers:
                before = chosen.get(id(layer), kept)
                chosen[id(layer)] = tuple(np.logical_and(before, kept).tolist())
    _check_met(found, flow)
    _check_tied(found, flow)
    made = {key: make() for key, make in flow.made.items()}
    return exchange(found, made).build()


def _chosen(found: Any, where: Any, channels: Any) -> dict[int, Kept]:
    chosen: dict[int, Kept] = {}
    nodes = found.find(where)
    for node in nodes:
        if not makes_channels(node.layer):
            raise UsageError(
                explain(
                    "`prune_channels`: this layer makes no channels of its own.",
                    where=node.path,
                    expected="a convolution, Dense, EinsumDense or Embedding",
                    received=type(node.layer).__name__,
                    fix="choose the layer that makes the channels: what follows it "
                    "loses them as well",
                )
            )
        asked = channels(node.layer) if callable(channels) else channels
        shape = node.outputs[0].shape if node.outputs else (None,)
        size = size_of(node.layer, shape)
        if size is None:
            raise _inside(node)
        kept = _kept(asked, size, node.path)
        if not all(kept):
            chosen[id(node.layer)] = kept
    if not nodes:
        raise no_match(
            "prune_channels", found.name, "a selector of layers", repr(where)
        )
    return chosen


def _kept(asked: Any, size: int, where: str) -> Kept:
    """Returns for each channel whether it stays."""
    numbers = list(asked) if isinstance(asked, Iterable) else None
    is_known = numbers is not None and all(
        isinstance(n, int | np.integer) and not isinstance(n, bool | np.bool_)
        for n in numbers
    )
    if not is_known or numbers is None:
        raise UsageTypeError(
            explain(
                "`channels` must be numbers of channels.",
                where=where,
                expected="a list of int, or a function of a layer that returns one",
                received=f"{asked!r} (of type {type(asked).__name__})",
                fix="pass for example `[0, 3]`",
            )
        )
    wrong = [n for n in numbers if not -size <= n < size]
    gone = {n % size for n in numbers}
    if wrong or len(gone) == size:
        raise UsageError(
            explain(
                "`channels` are not channels of this layer."
                if wrong
                else "`prune_channels` would delete all channels.",
                where=where,
                expected=f"some of the numbers from 0 to {size - 1}, not all",
                received=f"{numbers}",
                fix="leave out "
                + (", ".join(map(str, wrong)) if wrong else "at least one"),
            )
        )
    return tuple(n not in gone for n in range(size))


def _check_met(found: Any, flow: Flow) -> None:
    for node in found.walk():
        if id(node.layer) in flow.chosen and id(node.layer) not in flow.met:
            raise _inside(node)


def _check_tied(found: Any, flow: Flow) -> None:
    """Refuses to make one of several layers anew that share weights."""
    called = {
        id(node.layer): node
        for node in found.walk()
        if node.outputs
        and isinstance(node.layer, _keras.Layer)
        and _keras.inner_graph(node.layer) is None
    }
    users: dict[int, list[Any]] = {}
    for node in called.values():
        for variable in node.layer.weights:
            users.setdefault(id(variable), []).append(node)
    for nodes in users.values():
        made = [node for node in nodes if id(node.layer) in flow.made]
        # One that all others hold takes its place in them as well.
        if len(nodes) == 1 or not made:
            continue
        if len(made) > 1 or not all(_holds(n.layer, made[0].layer) for n in nodes):
            raise _tied(made[0], [node.path for node in nodes])


def _holds(layer: Any, other: Any) -> bool:
    return any(below is other for below in _keras.all_layers(layer))


def _tied(node: Any, paths: list[str]) -> UsageError:
    return UsageError(
        explain(
            "`prune_channels`: layers that share weights would no longer do so.",
            where=" and ".join(paths),
            expected="layers with weights of their own, each called as often as you "
            "like",
            received=f"weights of {node.path} in {len(paths)} layers",
            fix="prune other layers, or give these layers weights of their own first",
        )
    )


def _inside(node: Any) -> UsageError:
    return UsageError(
        explain(
            "`prune_channels`: this layer is inside another one, whose calls are "
            "Python code.",
            where=node.path,
            expected="a layer that a Functional or Sequential model calls",
            received=f"{type(node.layer).__name__} inside another layer",
            fix="choose a layer that `print(regraft.graph(model))` shows with its "
            "inputs",
        )
    )


def _must_match(clash: Clash) -> UsageError:
    names = list(dict.fromkeys(path for _, path, _ in clash.makers))
    return UsageError(
        explain(
            "`prune_channels`: tensors that are merged would lose different channels.",
            where=clash.where,
            expected="the same channels to be deleted of all that it merges",
            received=f"other channels of what {', '.join(names)} make(s)",
            fix="add these layers to `where`, or pass `together=True` to delete the "
            "same channels there",
        )
    )
