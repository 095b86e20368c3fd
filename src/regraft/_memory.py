"""Memory into which several arrays or tensors look.

What is written to one of them shows in the others, so it must in their copies: a replay
buffer whose leaves are a slice of its tree, weights tied by `b.data = a.data`.
"""

from __future__ import annotations

from typing import Any


class Memory:
    """Who looks into which memory. A piece is known by the address where it begins."""

    def __init__(self) -> None:
        self._viewers: dict[int, list[Any]] = {}
        self._common: set[int] = set()
        # The addresses of those of which nothing but memory is to be copied.
        self.bare: set[int] = set()
        # Those met before `begin_again`; some were made on the fly, and their addresses
        # must stay taken.
        self._earlier: dict[int, list[Any]] = {}

    def note(self, start: int, viewer: Any) -> bool:
        """Notes that somebody looks into memory; tells whether several are known to.

        Args:
            start: Where the memory begins.
            viewer: The array or tensor that looks into it.
        """
        viewers = self._viewers.setdefault(start, [viewer])
        if viewers[0] is not viewer:
            viewers.append(viewer)
            self._common.add(start)
        return start in self._common

    def is_common(self, start: int) -> bool:
        """Tells whether several look into the memory that begins at an address."""
        return start in self._common

    def count_common(self) -> int:
        """Returns how many pieces are looked into by several."""
        return len(self._common)

    def viewers(self, start: int) -> list[Any]:
        """Returns who looks into the memory that begins at an address."""
        return self._viewers.get(start, []) + self._earlier.get(start, [])

    def begin_again(self) -> None:
        """Forgets who was met, but not what is common."""
        self._earlier, self._viewers = self._viewers, {}
        self.bare.clear()
