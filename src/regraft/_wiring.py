"""Call nodes, which are wired when it is known which of them belong to the copy.

An operation also lists calls that other models made. Which of its calls the copy has is
known when the walk has seen everything; until then the lists wait here, and with them
the tensors and graphs that know a call by its number in such a list.
"""

from __future__ import annotations

from typing import Any

from . import _keras
from ._core import Core
from ._identity import address


class Wiring:
    """What is to be wired at the end of a walk."""

    def __init__(self) -> None:
        self._graphs: list[tuple[Any, Any]] = []
        self._tensors: list[tuple[Any, Any, Any]] = []
        self._cut: set[int] = set()

    def cut(self, tensor: Any) -> None:
        """Says that what produced a tensor is not part of the copy."""
        self._cut.add(address(tensor))

    def is_cut(self, tensor: Any) -> bool:
        """Tells whether `cut` was said of a tensor."""
        return address(tensor) in self._cut

    def note_tensor(self, tensor: Any, new: Any, node: Any) -> None:
        """Notes a symbolic tensor of a node, which will get its history."""
        self._tensors.append((tensor, new, node))

    def note_graph(self, graph: Any, new: Any) -> None:
        """Notes a graph, which will get its index of nodes."""
        self._graphs.append((graph, new))

    def finish(self, core: Core) -> None:
        """Gives operations their nodes, and tensors and graphs the new numbers.

        Args:
            core: Knows the copies of all that the walk has met.
        """
        index: dict[int, int] = {}
        for nodes, new, name in core.node_lists:
            mine = core.known_items(nodes)
            list.extend(new, mine)
            if name == _keras.NODE_LISTS[0]:
                for i, node in enumerate(mine):
                    index[address(node)] = i
        for _, graph in self._graphs:  # Layers that both models share get a new call.
            for node in _keras.own_nodes(graph):
                if address(node) not in index:
                    index[address(node)] = _keras.append_call(node)
        for tensor, new, producer in self._tensors:
            node = core.known(producer)
            _keras.set_history(new, tensor, node, index.get(address(node), 0))
        for _, new in self._graphs:
            _keras.set_node_keys(new, index)
