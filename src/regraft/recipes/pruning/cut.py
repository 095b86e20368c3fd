"""Which channels of a tensor are deleted, and what a rule is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._errors import UsageError, explain
from .._common import Array
from .._remaking import remade

Kept = tuple[bool, ...]
Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Cut:
    """What is deleted of a tensor.

    Attributes:
        axis: The axis of the channels, the batch counted.
        kept: For each channel, whether it stays.
    """

    axis: int
    kept: Kept

    def moved(self, axis: int) -> Cut:
        """Returns the same cut on another axis."""
        return Cut(axis, self.kept)

    def repeated(self, times: int) -> Cut:
        """Returns the cut where each channel became several neighbours."""
        return Cut(self.axis, tuple(k for k in self.kept for _ in range(times)))

    def shape(self, shape: Shape) -> Shape:
        """Returns what a shape becomes."""
        return (*shape[: self.axis], sum(self.kept), *shape[self.axis + 1 :])


@dataclass(frozen=True)
class Step:
    """One call of a layer, of which a rule is asked what cuts mean for it.

    Attributes:
        layer: The layer or operation.
        path: Its path.
        given: What is deleted of each of the tensors that it is called with.
        shapes: Their shapes, as they were.
        returned: The shape of its first output, as it was.
        chosen: Which channels of its own output stay, if some are to be deleted.
        constants: What else it is called with.
    """

    layer: Any
    path: str
    given: tuple[Cut | None, ...]
    shapes: tuple[Shape, ...]
    returned: Shape
    chosen: Kept | None = None
    constants: tuple[Any, ...] = ()

    @property
    def cut(self) -> Cut | None:
        """What is deleted of the first tensor that it is called with."""
        return self.given[0] if self.given else None

    @property
    def new_shape(self) -> Shape:
        """The shape of the first tensor that it is called with from now on."""
        return self.shapes[0] if self.cut is None else self.cut.shape(self.shapes[0])

    def on(self, axis: int) -> Kept | None:
        """Returns which channels stay, if they lie on an axis; refuses others."""
        if self.cut is None or self.cut.axis == axis:
            return None if self.cut is None else self.cut.kept
        raise self.refusal(
            f"it mixes the positions of axis {self.cut.axis}, on which channels are "
            "deleted"
        )

    def remade(
        self, weights: Mapping[str, Callable[[Array], Any]], **settings: Any
    ) -> Callable[[], Any]:
        """Returns a function that makes the layer with fewer weights.

        Args:
            weights: For the names of variables, functions from old values to new.
            **settings: What is different: arguments of the layer's constructor, or
                attributes.
        """
        shape = self.new_shape if self.shapes else None
        return lambda: remade(self.layer, shape, weights, where=self.path, **settings)

    def refusal(self, why: str) -> UsageError:
        """Returns the error for channels that cannot be deleted here."""
        kind = type(self.layer).__name__
        return UsageError(
            explain(
                f"`prune_channels` cannot delete channels through a {kind}.",
                where=self.path,
                expected="layers that treat each channel by itself, or sum over them",
                received=f"{kind}: {why}",
                fix="prune other layers, or teach the recipe this class with "
                "`regraft.recipes.pruning_rule`",
            )
        )


class Unequal(Exception):
    """Tensors that are added, or the like, have lost different channels.

    Attributes:
        sources: The numbers of the tensors from which more must be deleted.
        kept: The channels that stay if those of all are deleted.
    """

    def __init__(self, sources: Iterable[int], kept: Kept) -> None:
        super().__init__()
        self.sources = tuple(sources)
        self.kept = kept


def take(array: Array, axes: Mapping[int, Kept | None]) -> Array:
    """Returns what stays of an array, of which axes lose positions."""
    for axis, kept in axes.items():
        if kept is not None:
            array = np.compress(kept, array, axis=axis)
    return array
