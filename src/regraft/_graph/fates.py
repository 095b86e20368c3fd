"""What came from where: the fate of every variable of an edited model."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, overload

from .._errors import UsageError, explain

What = Literal["copied", "fitted", "fresh", "given", "dropped"]


class Fate(NamedTuple):
    """What became of one variable.

    Attributes:
        path: The variable's path in the new model; of a dropped one, in the old.
        what: `"copied"`: its value is that of a variable of the old model;
            `"fitted"`: as far as the shapes overlap, or as a function made it;
            `"fresh"`: newly drawn; `"given"`: it came with a new layer;
            `"dropped"`: the new model has no such variable.
        source: The path of the old variable, if there is one.
        old_shape: The shape of the old variable.
        new_shape: The shape of the new variable.
    """

    path: str
    what: What
    source: str | None = None
    old_shape: tuple[int, ...] | None = None
    new_shape: tuple[int, ...] | None = None

    def __str__(self) -> str:
        came = f" from {self.source}" if self.source not in (None, self.path) else ""
        shape = self.new_shape if self.new_shape is not None else self.old_shape
        was = ""
        if None not in (self.old_shape, self.new_shape):
            was = f", was {self.old_shape}" if self.old_shape != self.new_shape else ""
        return f"{self.what:7}  {self.path} {shape}{was}{came}"


@dataclass(frozen=True)
class Lineage(Sequence[Fate]):
    """The fates of all variables, and what else there is to say of an edit.

    Attributes:
        fates: One for each variable, those that were dropped last.
        notes: Sentences, such as that a shared layer is no longer shared.
    """

    fates: tuple[Fate, ...]
    notes: tuple[str, ...] = field(default=())

    @overload
    def __getitem__(self, index: int) -> Fate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Fate, ...]: ...
    def __getitem__(self, index: int | slice) -> Fate | tuple[Fate, ...]:
        return self.fates[index]

    def __len__(self) -> int:
        return len(self.fates)

    def __iter__(self) -> Iterator[Fate]:
        return iter(self.fates)

    def of(self, what: What) -> tuple[Fate, ...]:
        """Returns the variables with one fate."""
        return tuple(fate for fate in self.fates if fate.what == what)

    def __str__(self) -> str:
        counts = Counter(fate.what for fate in self.fates)
        head = ", ".join(f"{count} {what}" for what, count in counts.items())
        special = [str(fate) for fate in self.fates if fate.what != "copied"]
        return "\n".join([head or "no variables", *special, *self.notes])


_known: weakref.WeakKeyDictionary[Any, Lineage] = weakref.WeakKeyDictionary()


def note(model: Any, found: Lineage) -> None:
    """Remembers where the variables of a model came from, while it lives."""
    _known[model] = found


def lineage(model: Any) -> Lineage:
    """Tells what the variables of an edited model were made of.

    Args:
        model: What `Graph.build()` returned.

    Returns:
        The fate of each variable: copied, fitted, fresh, given or dropped.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="a")])
    >>> new = regraft.graph(model).append(keras.layers.Dense(3, name="b")).build()
    >>> print(regraft.lineage(new))
    2 copied, 2 fresh
    fresh    b/kernel (2, 3)
    fresh    b/bias (3,)
    """
    try:
        return _known[model]
    except (KeyError, TypeError):
        raise UsageError(
            explain(
                "Nothing is known of where this model came from.",
                where=getattr(model, "name", repr(model)),
                expected="a model that `Graph.build()` returned, in this program",
                received=f"{type(model).__name__}",
                fix="keep the model that was built; a file does not tell",
            )
        ) from None
