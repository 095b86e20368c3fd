"""`compare`: how far the outputs of two models are from each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from . import _backends, _keras
from ._clone import clone
from ._errors import UsageError, explain
from ._probe import check_comparable, draw_inputs


@dataclass(frozen=True)
class OutputRow:
    """How far one output is from the same output of another model.

    Attributes:
        name: The name of the output.
        left: The dtype of the first model's.
        right: The dtype of the second model's.
        max_abs: The largest difference of two numbers.
        max_rel: That, as a part of the largest number of the first model's.
        lost: How many numbers are finite in the first model's only.
    """

    name: str
    left: str
    right: str
    max_abs: float
    max_rel: float
    lost: int


@dataclass(frozen=True)
class OutputReport:
    """The result of `compare`; printing it gives a table.

    Attributes:
        left: The name of the first model.
        right: The name of the second model.
        rows: One row for each output.
    """

    left: str
    right: str
    rows: tuple[OutputRow, ...]

    def __iter__(self) -> Iterator[OutputRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str | int) -> OutputRow:
        """Returns the row of an output, by its name or number."""
        if isinstance(name, int):
            return self.rows[name]
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise UsageError(
                explain(
                    f"There is no output {name!r}.",
                    where=self.left,
                    expected=f"one of {', '.join(found)}",
                    received=repr(name),
                    fix="name one of these",
                )
            )
        return found[name]

    @property
    def max_abs(self) -> float:
        """The largest difference of two numbers in any output."""
        return max(row.max_abs for row in self.rows)

    @property
    def max_rel(self) -> float:
        """The largest difference in any output, as a part of its largest number."""
        return max(row.max_rel for row in self.rows)

    @property
    def lost(self) -> int:
        """How many numbers are finite in the first model's outputs only."""
        return sum(row.lost for row in self.rows)

    def __str__(self) -> str:
        head = ("output", self.left, self.right, "max abs", "max rel", "not finite")
        lines = [
            (row.name, row.left, row.right, *map(_figure, (row.max_abs, row.max_rel)))
            for row in self.rows
        ]
        lost = [(str(row.lost),) for row in self.rows]
        table = [head, *(a + b for a, b in zip(lines, lost, strict=True))]
        widths = [max(len(line[i]) for line in table) for i in range(len(head))]
        rows = (
            "  ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True))
            for line in table
        )
        return "\n".join(row.rstrip() for row in rows)


def _figure(number: float) -> str:
    return f"{number:.3g}"


def compare(a: Any, b: Any, inputs: Any = None) -> OutputReport:
    """Calls two models on the same inputs and says how far their outputs are apart.

    `verify` asks whether two models are the same, bit by bit. A copy in another
    precision is not; this tells what the precision costs. Copies of the models are
    called, so that neither is changed.

    Args:
        a: A model, layer or Function.
        b: Another one, with as many outputs of the same shapes.
        inputs: What to call both on. If None, inputs are drawn from the input specs
            of `a`.

    Returns:
        A report with a row for each output: dtypes, the largest difference, that as
        a part of the output's largest number, and how many numbers became infinite
        or NaN.

    Raises:
        UsageError: The models cannot be compared.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = regraft.compare(model, regraft.clone(model, dtype="bfloat16"))
    >>> report[0].right, report.max_rel < 0.05, report.lost
    ('bfloat16', True, 0)
    """
    check_comparable(a, b)
    if inputs is None:
        inputs = draw_inputs(a)
    if inputs is None:
        raise UsageError(
            explain(
                "The model does not say what it takes.",
                where=a.name,
                expected="a model with a graph, or one that was built for one input",
                received=type(a).__name__,
                fix="pass `inputs=`",
            )
        )
    mine, other = _outputs(a, inputs), _outputs(b, inputs)
    shapes = [[x.shape for x in outputs] for outputs in (mine, other)]
    if shapes[0] != shapes[1]:
        raise UsageError(
            explain(
                "The outputs of the models have other shapes.",
                where=f"{a.name} and {b.name}",
                expected=f"outputs of shapes {shapes[0]}",
                received=f"outputs of shapes {shapes[1]}",
                fix="compare a model with a copy that has the same outputs, on inputs "
                "that both take",
            )
        )
    names = getattr(a, "output_names", None) or []
    if len(names) != len(mine):
        names = [f"output {i}" for i in range(len(mine))]
    rows = map(_row, names, mine, other)
    return OutputReport(left=a.name, right=b.name, rows=tuple(rows))


def _outputs(model: Any, inputs: Any) -> list[Any]:
    probe = clone(model)
    kwargs = {"training": False} if isinstance(probe, _keras.Layer) else {}
    with _keras.fixed_globals(), _backends.active().fixed_global_rng():
        outputs = keras.tree.flatten(probe(inputs, **kwargs))
    return [_keras.to_numpy(x) for x in outputs]


def _row(name: str, left: Any, right: Any) -> OutputRow:
    mine, other = left.astype("float64"), right.astype("float64")
    finite = np.isfinite(mine)
    both = finite & np.isfinite(other)
    apart = float(np.max(np.abs(mine - other), initial=0.0, where=both))
    largest = float(np.max(np.abs(mine), initial=0.0, where=both))
    part = apart / largest if largest else (0.0 if apart == 0 else math.inf)
    return OutputRow(
        name=name,
        left=str(left.dtype),
        right=str(right.dtype),
        max_abs=apart,
        max_rel=part,
        lost=int(np.sum(finite & ~both)),
    )
