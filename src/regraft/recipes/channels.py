"""Another number of channels in the input, with the weights of the first layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers

from .. import _keras
from .._errors import UsageError, UsageTypeError, explain
from .._graph import Node, Ref, graph
from ._common import Array, as_built, channel_axis, exchange, value
from ._remaking import remade
from .pruning.table import passes_channels

_CONV = (layers.Conv1D, layers.Conv2D, layers.Conv3D)
# What treats all channels alike, besides what the rules for deleting them know.
_ALIKE = (
    *(layers.RandomFlip, layers.RandomRotation, layers.RandomZoom),
    *(layers.RandomTranslation, layers.RandomCrop, layers.CenterCrop),
)


def change_channels(model: Any, n: int, *, input: Any = None) -> Any:
    """Makes a model take images with another number of channels.

    With fewer channels than before (RGB to gray), the kernels of the first layers are
    summed over the old channels and divided by the new number: a gray image gives
    what it gave before as an RGB image with three equal channels. Where something in
    front of these layers treats channels differently, such as a `Normalization` with
    a mean for each, the gray channel (the mean of the new ones) is repeated there
    instead, and all weights stay.

    With more channels than before, the old ones keep their kernels, and each new one
    gets their mean. What is zero in the new channels where they reach these layers
    gives what it gave before. Behind something that moves zero that is no image with
    zeros there: behind `Rescaling(1 / 127.5, offset=-1)` it is one with 127.5, and
    behind a `Normalization`, whose statistics are averaged for new channels, one with
    the averages of the means.

    Args:
        model: A model or its graph.
        n: The number of channels.
        input: The name of the input, or a tuple of names, if there are several.

    Returns:
        A new model, with the weights of all other layers.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)])
    >>> regraft.recipes.change_channels(model, 1).input_shape
    (None, 8, 8, 1)
    """
    found = as_built(model)
    _check_number(n)
    starts = _starts(found, input)
    change = _Change(n, found[starts[0]].outputs[0].shape)
    for ref in starts:
        change.follow(found, "", ref)
    change.check_calls()
    change.check_merges()
    if n == change.old:
        return found.build()
    new = {id(found[ref].layer): change.input(found[ref]) for ref in starts}
    # They stand for what comes later, when all shapes can change together.
    seats = {key: layers.Identity(name=f"{x.name}_channels") for key, x in change.mixed}
    edited: Any = found
    if seats:
        edited = edited.insert(
            lambda old: seats[id(old)], before=lambda node: id(node.layer) in seats
        )
    widened = {id(seat): change.widening(seat.name) for seat in seats.values()}
    return exchange(edited, {**new, **change.made(), **widened}).build()


class _Change:
    """Follows the channels of an input to the layers that sum over them.

    Attributes:
        mixed: Layers, with their ids, in front of which the channels are repeated.
    """

    def __init__(self, n: int, shape: Any) -> None:
        self.mixed: list[tuple[int, Any]] = []
        self._n = n
        self._shape = shape
        self._axis: int | None = None
        self._makers: dict[int, Callable[[], Any]] = {}
        self._met: dict[int, tuple[str, Node, set[int]]] = {}
        # The tensors that have the channels, each by the model that it is in.
        self._having: set[tuple[str, Ref]] = set()
        self._merges: list[tuple[str, Any, Node]] = []

    @property
    def axis(self) -> int:
        """The axis of the channels: layers tell, as soon as one is met."""
        return len(self._shape) - 1 if self._axis is None else self._axis

    @property
    def old(self) -> int:
        """How many channels there were."""
        return int(self._shape[self.axis])

    def made(self) -> dict[int, Any]:
        """Returns the layers that take the places of old ones, by their ids."""
        return {key: make() for key, make in self._makers.items()}

    # --- the way of the channels --------------------------------------------------

    def follow(self, part: Any, prefix: str, ref: Ref) -> None:
        """Changes all that a tensor with these channels goes to."""
        if ref in part.outputs:
            raise _refused(prefix + ref.path, "the channels reach an output")
        self._having.add((prefix, ref))
        for user in part[ref].consumers:
            node = part[user]
            where = f"{prefix}{node.path}"
            if _keras.inner_graph(node.layer) is not None:
                self._note(where, node)
                inner = graph(node.layer)
                for source, inside in zip(node.sources, inner.inputs, strict=True):
                    if source == ref:
                        self.follow(inner, f"{where}/", inside)
            elif self._one(node, where, part[ref].outputs[ref.output].shape):
                if len({*node.sources}) > 1:
                    self._merges.append((prefix, part, node))
                self.follow(part, prefix, Ref(node.path, node.call))

    def _one(self, node: Node, where: str, shape: Any) -> bool:
        """Changes a layer; tells whether the channels go on behind it."""
        layer = node.layer
        if self._axis is None:
            self._axis = _told_axis(layer, len(shape))
        if _keras.computes_like(layer, *_CONV) and layer.groups == 1:
            self._note(where, node)
            self._makers[id(layer)] = lambda: self._conv(layer, where, shape)
            return False
        if _treats_alike(node, shape):
            return True
        self._note(where, node)
        if len({*node.sources}) > 1:
            raise _merged(where, node, node.sources)
        if self._n <= self.old:
            if all(key != id(layer) for key, _ in self.mixed):
                self.mixed.append((id(layer), layer))
            return False
        wider = _WIDER.get(type(layer))
        if wider is None:
            raise _refused(where, f"a {type(layer).__name__}, which is given them")
        self._makers[id(layer)] = lambda: wider(self, layer, where, shape)
        return True

    def _note(self, where: str, node: Node) -> None:
        _, _, calls = self._met.setdefault(id(node.layer), (where, node, set()))
        calls.add(node.call)

    def check_calls(self) -> None:
        """Refuses layers that are also called with something else."""
        for where, node, calls in self._met.values():
            if len(calls) != node.calls:
                raise UsageError(
                    explain(
                        "`change_channels`: a layer that takes these channels is also "
                        "called with other tensors.",
                        where=where,
                        expected=f"all its {node.calls} calls to be given them",
                        received=f"{len(calls)} of them",
                        fix="name all inputs that go there: `input=('left', 'right')`",
                    )
                )

    def check_merges(self) -> None:
        """Refuses to merge these channels with tensors that keep the old ones."""
        for prefix, part, node in self._merges:
            others = []
            for ref in node.sources:
                shape = part[ref].outputs[ref.output].shape
                is_wide = len(shape) != len(self._shape) or shape[self.axis] != 1
                if is_wide and (prefix, ref) not in self._having:
                    others.append(ref)
            if others:
                raise _merged(f"{prefix}{node.path}", node, others)

    # --- what it makes ------------------------------------------------------------

    def input(self, node: Node) -> Any:
        """Returns the input that takes the place of another one."""
        given = node.outputs[0]
        return keras.Input(
            batch_shape=self.resized(given.shape), dtype=given.dtype, name=node.name
        )

    def resized(self, shape: Any) -> tuple[Any, ...]:
        """Returns a shape with the new number of channels."""
        return (*shape[: self.axis], self._n, *shape[self.axis + 1 :])

    def widening(self, name: str) -> Any:
        """Returns a model that makes the old channels, all alike, of the new ones."""
        x = keras.Input(batch_shape=self.resized([None] * len(self._shape)))
        mean = keras.ops.mean(x, self.axis, keepdims=True) if self._n > 1 else x
        repeated = layers.Concatenate(axis=self.axis)([mean] * self.old)
        return keras.Model(x, repeated, name=name)

    def longer(self, array: Array, axis: int) -> Array:
        """Returns an array with the mean of its channels for each new one."""
        mean = array.mean(axis, keepdims=True)
        return np.concatenate([array, *[mean] * (self._n - self.old)], axis)

    def _conv(self, layer: Any, where: str, shape: Any) -> Any:
        def kernel(old: Array) -> Array:
            if self._n > self.old:
                return self.longer(old, -2)
            total = old.sum(-2, keepdims=True) / self._n
            return np.repeat(total, self._n, -2)

        return remade(layer, self.resized(shape), {"kernel": kernel}, where=where)

    def batch_normalization(self, layer: Any, where: str, shape: Any) -> Any:
        weights = {v.name: lambda old: self.longer(old, 0) for v in layer.variables}
        return remade(layer, self.resized(shape), weights, where=where)

    def normalization(self, layer: Any, where: str, shape: Any) -> Any:
        if layer.input_mean is not None:
            names = ("input_mean", "input_variance")
            given = {name: self._each(getattr(layer, name)) for name in names}
            return remade(layer, self.resized(shape), {}, where=where, **given)
        # What it computes with, which is derived from its variables now and then.
        weights = {
            "mean": self.longer(value(layer.mean).reshape(-1), 0),
            "variance": self.longer(value(layer.variance).reshape(-1), 0),
        }
        new = remade(layer, self.resized(shape), weights, where=where)
        new.finalize_state()
        return new

    def rescaling(self, layer: Any, where: str, shape: Any) -> Any:
        config = {
            name: self._each(getattr(layer, name)) for name in ("scale", "offset")
        }
        return remade(layer, self.resized(shape), {}, where=where, **config)

    def _each(self, numbers: Any) -> Any:
        """Returns numbers for each channel, of which there are more now."""
        array = np.array(numbers)
        if self.old not in array.shape:
            return numbers
        return self.longer(array, array.shape.index(self.old)).tolist()


_WIDER: dict[type, Callable[..., Any]] = {
    layers.BatchNormalization: _Change.batch_normalization,
    layers.Normalization: _Change.normalization,
    layers.Rescaling: _Change.rescaling,
}


def _told_axis(layer: Any, rank: int) -> int | None:
    """Returns the axis of the channels, if a layer tells it."""
    if isinstance(layer, layers.BatchNormalization | layers.Normalization):
        axes = np.atleast_1d(() if layer.axis is None else layer.axis)
        return int(axes[0]) % rank if axes.size == 1 else None
    if isinstance(layer, layers.Rescaling) and np.ndim(layer.scale):
        sizes = np.shape(layer.scale)
        return rank - len(sizes) + sizes.index(max(sizes))
    return channel_axis(layer, rank) if hasattr(layer, "data_format") else None


def _treats_alike(node: Node, shape: Any) -> bool:
    """Tells whether a layer does the same with all channels, and keeps them."""
    layer = node.layer
    if len(node.outputs[0].shape or ()) != len(shape):
        return False
    if _keras.computes_like(layer, layers.Normalization):
        sizes = (layer.input_mean, *(value(v) for v in layer.variables))
        return all(np.size(x) == 1 for x in sizes)
    if _keras.computes_like(layer, layers.Rescaling):
        return np.size(layer.scale) == 1 and np.size(layer.offset) == 1
    rest = [x for x in keras.tree.flatten(node.arguments) if not isinstance(x, Ref)]
    if not isinstance(layer, _keras.Layer):  # Some operations keep what they are given.
        rest += keras.tree.flatten(_keras.settings(layer))
    has_arrays = any(np.ndim(x) for x in rest if not isinstance(x, str))
    is_known = _keras.computes_like(layer, *_ALIKE) or passes_channels(layer)
    return is_known and not has_arrays and not getattr(layer, "weights", ())


def _starts(found: Any, names: Any) -> list[Ref]:
    """Returns the inputs that are meant."""
    known = {ref.path: ref for ref in found.inputs}
    asked = [names] if isinstance(names, str) else list(names or ())
    if names is None and len(known) == 1:
        return list(known.values())
    if not asked or any(name not in known for name in asked):
        raise UsageError(
            explain(
                "`change_channels` must be told which input.",
                where=found.name,
                expected=f"`input=` with one or more of {', '.join(known)}",
                received=f"input={names!r}",
                fix=f"pass for example `input={next(iter(known))!r}`",
            )
        )
    return [known[name] for name in asked]


def _check_number(n: Any) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise UsageTypeError(
            explain(
                "`n` must be a number of channels.",
                where="argument `n`",
                expected="an int from 1 on",
                received=f"{n!r} (of type {type(n).__name__})",
                fix="pass for example `1` for gray images",
            )
        )


def _refused(where: str, what: str) -> UsageError:
    return UsageError(
        explain(
            "`change_channels` does not know what becomes of more channels here.",
            where=where,
            expected="a convolution, behind layers that treat all channels alike",
            received=what,
            fix="put the layers that you want in its place with `Graph.replace`",
        )
    )


def _merged(where: str, node: Node, sources: Sequence[Ref]) -> UsageError:
    return UsageError(
        explain(
            "`change_channels`: the channels are merged with other tensors.",
            where=where,
            expected="channels that go to convolutions before they are merged",
            received=f"{type(node.layer).__name__}, which is given "
            + ", ".join(ref.path for ref in sources),
            fix="put a layer that makes the old number of channels behind the input "
            "with `Graph.insert`, or replace the layers around the merge",
        )
    )
