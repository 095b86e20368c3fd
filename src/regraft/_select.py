"""The one grammar by which places in a graph are named."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from ._errors import UsageError, UsageTypeError, explain

# A path, a pattern, a class, a function of a node, a node, a selection, or a tuple of
# these.
Where = Any


class Selection(Sequence[Any]):
    """Nodes that a selector found, in the order of the graph.

    Args:
        nodes: The nodes.
        graph: The name of the graph, for messages.
        where: What was asked for, for messages.
    """

    def __init__(self, nodes: Iterable[Any], graph: str, where: Where) -> None:
        self.nodes = tuple(nodes)
        self._graph = graph
        self._where = where

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Selection: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Selection(self.nodes[index], self._graph, self._where)
        return self.nodes[index]

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selection) and self.nodes == other.nodes

    def __hash__(self) -> int:
        return hash(self.nodes)

    def __repr__(self) -> str:
        return f"Selection({[node.path for node in self.nodes]})"

    def __str__(self) -> str:
        return "\n".join(map(str, self.nodes))

    def where(self, where: Where) -> Selection:
        """Returns those of the nodes that another selector means, too."""
        return Selection(select(where, self.nodes), self._graph, where)

    def one(self) -> Any:
        """Returns the only node; an error if there are none or several."""
        return self.expect(1).nodes[0]

    def expect(self, count: int) -> Selection:
        """Returns the selection if it has so many nodes; else raises an error."""
        if len(self.nodes) != count:
            shown = ", ".join(node.path for node in self.nodes[:5]) or "nothing"
            more = ", ..." if len(self.nodes) > 5 else ""
            raise UsageError(
                explain(
                    f"Expected {count} node(s), found {len(self.nodes)}.",
                    where=f"{self._graph}, {self._where!r}",
                    expected=f"a selector that means {count}",
                    received=f"{shown}{more}",
                    fix="make the selector narrower or wider, or expect another number",
                )
            )
        return self


def select(where: Where, nodes: Iterable[Any]) -> list[Any]:
    """Returns the nodes that a selector means."""
    ask = _question(where)
    return [node for node in nodes if ask(node)]


def _question(where: Where) -> Callable[[Any], bool]:
    if isinstance(where, str):
        if any(sign in where for sign in "*?["):
            return lambda node: fnmatch.fnmatchcase(node.path, where)
        return lambda node: bool(node.path == where)
    if isinstance(where, type):
        return lambda node: isinstance(node.layer, where)
    if isinstance(where, Selection):
        chosen = {(node.path, node.call) for node in where}
        return lambda node: (node.path, node.call) in chosen
    if isinstance(where, tuple | list):
        asked = [_question(part) for part in where]
        return lambda node: any(ask(node) for ask in asked)
    if hasattr(where, "path") and hasattr(where, "call"):
        return lambda node: bool(node.path == where.path and node.call == where.call)
    if callable(where):
        return lambda node: bool(where(node))
    raise UsageTypeError(
        explain(
            "This does not name a place in a graph.",
            where="argument `where`",
            expected="a path, a pattern, a class, a function of a node, a node, a "
            "selection, or a tuple of these",
            received=f"{where!r} (of type {type(where).__name__})",
            fix="pass for example `'encoder/*'` or `keras.layers.Dense`",
        )
    )
