"""What the verbs ask about places."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _keras
from .._errors import UsageError, explain
from .calls import Call
from .splice import Place
from .table import Table


def by_part(places: Sequence[Place]) -> list[Place]:
    """Returns one place for each layer: edits hold at all calls of a shared one."""
    found: dict[int, Place] = {}
    for place in places:
        found.setdefault(place.part, place)
    return list(found.values())


def calls_of(table: Table, place: Place) -> list[Call]:
    assert place.scope is not None
    calls = table.scope_of(place.scope).calls
    if place.only:
        return [call for call in calls if call.number == place.call]
    return [call for call in calls if call.part == place.part]


def held(place: Place, verb: str, what: str) -> UsageError:
    return UsageError(
        explain(
            f"`{verb}`: a layer inside another layer cannot become {what}.",
            where=place.path,
            expected="a layer: what calls it is Python code",
            received=what,
            fix="pass a layer, for example `keras.layers.Activation(function)`",
        )
    )


def refuse_inputs(
    table: Table, places: Sequence[Place], verb: str, remedy: str
) -> None:
    for place in places:
        if isinstance(table[place.part].operation, _keras.InputLayer):
            raise UsageError(
                explain(
                    f"`{verb}`: this is an input of the model.",
                    where=place.path,
                    expected="a layer or an operation",
                    received="an InputLayer",
                    fix=remedy,
                )
            )
