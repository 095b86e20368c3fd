"""How calls in two graphs are compared: who made what, and in which order.

An operation also lists calls that other models made, and a tensor may come from outside
a model. So the lists can be judged when it is known which calls belong to both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import _keras
from ._identity import address
from ._values import Difference


def compare_call_lists(
    comparison: Any, left: Any, right: Any, path: str
) -> Iterator[Difference]:
    """Compares the calls that two operations list, as far as both models have them."""
    for name in _keras.NODE_LISTS:
        mine, other = (vars(side).get(name) or [] for side in (left, right))
        where = f"{path}.{name}"
        if mine is other:  # That is told where attributes are compared.
            continue
        partners = [comparison.partner_of(node) for node in list.__iter__(mine)]
        wanted = [partner for partner in partners if partner is not None]
        its = filter(comparison.has_partner, list.__iter__(other))
        found = [address(node) for node in its]
        if name == _keras.NODE_LISTS[1]:  # Nobody counts those who take its outputs.
            wanted, found = sorted(wanted), sorted(found)
        if wanted != found:
            yield Difference(where, len(wanted), len(found), "which calls it lists")


def compare_node_keys(left: Any, right: Any, path: str) -> Iterator[Difference]:
    """Compares whether graphs know their calls by the numbers that these have."""
    mine, other = map(_keras.knows_its_nodes, (left, right))
    if mine and not other:
        why = "whether it knows its calls by their numbers"
        yield Difference(f"{path}._nodes", mine, other, why)


def compare_producers(
    comparison: Any, left: Any, right: Any, path: str
) -> Iterator[Difference]:
    """Compares the calls that made two tensors, unless from outside the model."""
    mine, other = _keras.producer(left), _keras.producer(right)
    partner = None if mine is None else comparison.partner_of(mine)
    is_lost = _keras.is_input(mine) and other is None
    is_other = partner is not None and address(other) != partner
    if is_lost or is_other:
        yield Difference(f"{path}.<made by>", mine, other, "another call")
