"""`diff` and `verify`: what differs between two models, and the proof of nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ._diff import Comparison
from ._errors import DifferenceError, explain
from ._probe import behaviour, check_comparable
from ._shared_code import read_by_both
from ._values import Difference


def diff(a: Any, b: Any, inputs: Any = None) -> Iterator[Difference]:
    """Yields every difference between two models.

    Compared are structure, classes, configuration, flags, names, variables
    (bitwise), ties, random and training state, and what the models do with
    `inputs`: outputs, masks, losses, gradients and one training step. Anything
    mutable that both models hold is a difference too: they are not independent.
    Neither model is changed.

    Args:
        a: A model, layer or Function.
        b: Another one.
        inputs: What to call both on. If None, inputs are drawn from the input
            specs of `a`, where it has any. If False, the models are compared
            but not run.

    Yields:
        `Difference` objects; printing one gives a readable line.

    Example:
    >>> import keras, regraft
    >>> head = keras.layers.Dense(2, name="head")
    >>> model = keras.Sequential([keras.Input((4,)), head], name="net")
    >>> other = regraft.clone(model)
    >>> other.layers[0].activation = keras.activations.relu
    >>> for difference in regraft.diff(model, other):
    ...     print(difference.path, difference.why)
    ...     break
    net/head.activation function
    """
    check_comparable(a, b)
    are_alike = True
    for difference in Comparison(a, b).run():
        are_alike = False
        yield difference
    yield from _behaviour(a, b, inputs, [], are_alike=are_alike)


@dataclass(frozen=True)
class Proof:
    """The result of `verify`.

    Attributes:
        left: The name of the first model.
        right: The name of the second model.
        differences: All differences that were found.
        objects: How many pairs of objects were compared.
        variables: How many pairs of variables were compared, bit by bit.
        bytes: How many bytes of variables were compared.
        note: Why what they compute was not compared; nothing if it was.
    """

    left: str
    right: str
    differences: tuple[Difference, ...] = field(repr=False)
    objects: int
    variables: int
    bytes: int
    note: str = ""

    @property
    def same(self) -> bool:
        """Whether no difference was found."""
        return not self.differences

    def raise_if_different(self) -> Proof:
        """Raises `DifferenceError` if there is any difference; returns the proof."""
        if self.differences:
            shown = "\n".join(f"  {d}" for d in self.differences[:20])
            more = len(self.differences) - 20
            rest = f"\n  … and {more} more" if more > 0 else ""
            raise DifferenceError(
                explain(
                    f"{len(self.differences)} difference(s) between {self.left!r} "
                    f"and {self.right!r}:\n{shown}{rest}",
                    where=self.differences[0].path,
                    expected="two models that are equal and share nothing mutable",
                    received=f"{len(self.differences)} difference(s)",
                    fix="look at the first one; the others often follow from it",
                )
            )
        return self

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        looked_at = (
            f"{self.objects:,} objects, {self.variables:,} variables, "
            f"{self.bytes:,} bytes compared"
        )
        if self.note:
            looked_at += f" ({self.note})"
        if self.same:
            return f"{self.left} and {self.right} are the same: {looked_at}."
        lines = "\n".join(f"  {d}" for d in self.differences)
        count = len(self.differences)
        return f"{self.left} and {self.right} differ in {count}: {looked_at}.\n{lines}"


def verify(a: Any, b: Any, inputs: Any = None) -> Proof:
    """Compares two models completely and returns the result.

    Args:
        a: A model, layer or Function.
        b: Another one.
        inputs: What to call both on, see `diff`.

    Returns:
        A `Proof`; `proof.same` tells whether the models are equal and
        independent, `proof.raise_if_different()` insists on it.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> regraft.verify(model, regraft.clone(model)).raise_if_different().variables
    2
    """
    check_comparable(a, b)
    comparison = Comparison(a, b)
    found = list(comparison.run())
    notes: list[str] = []
    found += _behaviour(a, b, inputs, notes, are_alike=not found)
    return Proof(
        left=_name(a),
        right=_name(b),
        differences=tuple(found),
        objects=comparison.objects,
        variables=comparison.variables,
        bytes=comparison.bytes,
        note="; ".join(notes),
    )


def _behaviour(
    a: Any, b: Any, inputs: Any, notes: list[str], *, are_alike: bool
) -> Iterator[Difference]:
    """Yields differences in what two models do, and what both do it with."""
    if a is b:
        return
    common = list(read_by_both(a, b))
    yield from common
    if common:  # Copies of the models would use it, too, and change it.
        notes.append("not called, as they would change what both of them use")
    else:
        yield from behaviour(a, b, inputs, notes, are_alike=are_alike)


def _name(model: Any) -> str:
    return str(getattr(model, "name", type(model).__name__))
