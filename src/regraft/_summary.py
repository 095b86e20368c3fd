"""Where the variables of a model lie, as a value and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from . import _keras
from ._backends import engines


@dataclass(frozen=True)
class Placed:
    """One variable, and where it lies."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Where every variable of a replicated model lies; prints as a table.

    Attributes:
        engine: What runs the batches.
        devices: The devices of the replicas.
        variables: One entry for each variable of the model and its optimizer.
    """

    engine: str
    devices: tuple[str, ...]
    variables: tuple[Placed, ...]

    @classmethod
    def of(cls, model: Any, replicas: engines.Replicas) -> Placement:
        """Looks at the variables of a model, and of its optimizer."""
        rows = []
        for variable in _keras.variables_in_training(model):
            row = Placed(
                variable.path,
                tuple(variable.shape),
                _keras.standard_dtype(variable),
                _keras.size_in_bytes(variable),
                tuple(replicas.homes(variable)),
            )
            rows.append(row)
        return cls(replicas.describe(), replicas.devices, tuple(rows))

    def __rich__(self) -> Table:
        total = sum(row.bytes for row in self.variables)
        table = Table(
            "variable",
            "shape",
            "type",
            "devices",
            title=f"{self.engine}: {', '.join(self.devices)}",
            caption=f"{len(self.variables)} variables, {total:,} bytes a copy",
        )
        for row in self.variables:
            shape = " x ".join(map(str, row.shape)) or "scalar"
            table.add_row(row.path, shape, row.dtype, ", ".join(row.devices))
        return table

    def __str__(self) -> str:
        console = Console(width=120, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()
