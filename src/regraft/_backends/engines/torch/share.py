"""One replica's share of a call: its rows, its variables, what it leaves behind.

All replicas run the one model. While a replica runs, a scope of Keras stands between
the layers and their variables: values that are read are copied to the replica's
device, with their gradients, and values that are assigned stay with the replica until
all have finished. Then they become one, by the `aggregation` of the variable:

- `"sum"` (the state of metrics): what the replicas added is added up;
- `"only_first_replica"`, and the state of random streams: that of replica 0;
- otherwise floating point numbers are averaged, weighted by rows, and whole numbers
  must be the same on every replica.

Losses that layers add are averaged, weighted by rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import torch

from ...._errors import ReplicaError, explain
from .cutting import cut
from .statistics import acting_as
from .watch import ComeHere

# Sums tensors over replicas. The text says what they are: all replicas must agree.
Total = Callable[[str, list[Any]], list[Any]]


@dataclass(frozen=True)
class Finished:
    """What a replica's run gave.

    Attributes:
        outputs: The outputs for its rows.
        state: Variables that were assigned, with the value of all replicas.
        losses: Losses that layers added, each with that of all replicas.
    """

    outputs: Any
    state: list[tuple[Any, Any]]
    losses: list[tuple[Any, Any]]


class Share:
    """The part that one replica has in a call.

    Args:
        index: The number of the replica.
        rows: The rows of the batch that it runs.
        batch: The number of rows of the batch.
        device: The device that it runs on.
        total: How it meets the other replicas.
        streams: Where to note the ids of the states of random streams.
        is_idle: Whether there are more replicas than rows, and this one has none:
            it runs a row to keep step with the others, and the row counts nothing.
        has_constants: Whether layers hold tensors, besides variables, that must be
            brought to the device.
        watch: Called whenever other replicas may run, and at the end.
    """

    def __init__(
        self,
        index: int,
        rows: slice,
        batch: int,
        device: Any,
        total: Total,
        streams: set[int],
        *,
        is_idle: bool = False,
        has_constants: bool = False,
        watch: Callable[[], None] | None = None,
    ) -> None:
        self.index = index
        self.rows = rows
        self.batch = batch
        self.device = device
        self.is_idle = is_idle
        self.weight = 0.0 if is_idle else (rows.stop - rows.start) / batch
        self.streams = streams
        self._bringing = ComeHere(device) if has_constants else nullcontext()
        self._total = total
        self._watch = watch or (lambda: None)

    def total(self, what: str, tensors: list[Any]) -> list[Any]:
        """Returns the sums of tensors over all replicas, differentiably."""
        self._watch()
        if self.is_idle:
            tensors = [tensor * 0 for tensor in tensors]
        return self._total(what, tensors)

    def run(self, call: Any, args: Any, kwargs: Any) -> Finished:
        """Calls the model on the rows of this share."""
        scope = _ReplicaScope(self.device)
        args, kwargs = cut((args, kwargs), self.rows, self.batch, self.device)
        with keras.device(str(self.device)), scope, acting_as(self), self._bringing:
            outputs = call(*args, **kwargs)
        self._watch()
        with torch.no_grad():
            state = self._unite(scope)
        losses = [loss * self.weight for loss in scope.losses]
        if losses:
            losses = self.total(f"{len(losses)} losses of layers", losses)
        return Finished(outputs, state, list(zip(scope.losses, losses, strict=True)))

    def _unite(self, scope: _ReplicaScope) -> list[tuple[Any, Any]]:
        """Makes one value for all replicas of each variable that was assigned."""
        variables = list(scope.assigned.values())
        if not variables:
            return []
        paths = ", ".join(variable.path for variable in variables)
        values = [scope.get_current_value(variable) for variable in variables]
        parts = [self._part(*pair) for pair in zip(variables, values, strict=True)]
        sums = self.total(f"the state of {paths}", parts)
        for i, (variable, value) in enumerate(zip(variables, values, strict=True)):
            if variable.aggregation == "sum":
                sums[i] = sums[i] + variable._value.to(self.device)
            sums[i] = sums[i].to(value.dtype)
        self._check_whole_numbers(variables, values, sums)
        return list(zip(variables, sums, strict=True))

    def _part(self, variable: Any, value: Any) -> Any:
        """Returns what this replica contributes to the value of a variable."""
        if variable.aggregation == "sum":
            return value - variable._value.to(self.device)
        if _is_float(value) and variable.aggregation != "only_first_replica":
            return value * self.weight
        wide = value.to(torch.int64) if value.dtype == torch.bool else value
        return wide if self.index == 0 else torch.zeros_like(wide)

    def _check_whole_numbers(
        self, variables: list[Any], values: list[Any], united: list[Any]
    ) -> None:
        unclear = [
            (variable, (value != one).sum())
            for variable, value, one in zip(variables, values, united, strict=True)
            if not _is_float(value)
            and variable.aggregation not in ("sum", "only_first_replica")
            and id(variable) not in self.streams
        ]
        if not unclear:
            return
        counts = self.total("differences", [count for _, count in unclear])
        for (variable, _), count in zip(unclear, counts, strict=True):
            if int(count):
                raise ReplicaError(
                    explain(
                        "The replicas disagree about a whole number.",
                        where=variable.path,
                        expected="the same value on every replica",
                        received="values that differ by replica",
                        fix="say what they mean together when the variable is made: "
                        '`aggregation="sum"` or `"only_first_replica"`',
                    )
                )


class _ReplicaScope(keras.StatelessScope):
    """Stands between layers and variables while a replica runs."""

    def __init__(self, device: Any) -> None:
        super().__init__(collect_losses=True, initialize_variables=False)
        self.device = device
        self.assigned: dict[int, Any] = {}

    def get_current_value(self, variable: Any) -> Any:
        """Returns the value on this replica's device, which passes gradients on."""
        value = self.state_mapping.get(id(variable))
        if value is None:
            if variable._value is None:
                raise ReplicaError(
                    explain(
                        "A variable was made while a replicated model was called.",
                        where=variable.path,
                        expected="a model that has all its variables",
                        received="a layer that was built by this call",
                        fix="call the `template` once with the same arguments",
                    )
                )
            value = variable._value.to(self.device)
            self.state_mapping[id(variable)] = value
        return value

    def add_update(self, update: Any) -> None:
        """Notes an assignment, which is no step of the computation.

        What is read afterwards is the new value, yet its gradient is still that of
        the variable, as it is after an assignment in place.
        """
        variable, value = update
        old, value = self.get_current_value(variable), value.detach()
        if old.requires_grad:
            value = value + (old - old.detach())
        self.state_mapping[id(variable)] = value
        self.assigned[id(variable)] = variable


def _is_float(value: Any) -> bool:
    return bool(value.is_floating_point() or value.is_complex())
