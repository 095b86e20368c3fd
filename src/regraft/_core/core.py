"""What a walk knows, and how it comes to know more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._atoms import ATOMS
from .._identity import LARGE, address, may_hold_ids

Maker = Callable[[Any, Any], Any]
Fill = Callable[[Any, Any, Any], None]
Keep = Callable[[Any], bool]

_MISSING: Any = object()


class Core:
    """Knows what stands for each object that was met, and has the others made.

    Args:
        choose: Decides, by an object, who makes copies of objects of its class.
        keep: Asked of each object: should both models share it?

    Attributes:
        memo: The copies of what was met, by the addresses of the originals.
        kinds: The classes of what was met, atoms and tuples of them aside.
        pending: Shells that wait to be filled: `(fill, original, shell)`.
        with_ids: Lists, and dicts, among whose values there may be ids of objects.
        node_lists: Lists of calls, each with its copy, which is filled at the end, and
            the name of the attribute that holds it: `(calls, copy, name)`.
        keep: What was given.
    """

    def __init__(
        self,
        choose: Callable[[Any], Maker],
        keep: Keep | None = None,
    ) -> None:
        self.keep = keep
        self.memo: dict[int, Any] = {}
        self.kinds: list[type] = []
        # By the addresses of classes: a metaclass may say what equals a class.
        self._makers: dict[int, Maker] = {}
        self.pending: list[tuple[Fill, Any, Any]] = []
        self.with_ids: list[Any] = []
        self.node_lists: list[tuple[list[Any], list[Any], str]] = []
        self._choose = choose
        # Those that may be used without asking `keep`, which wants to see everything.
        self._quick_makers = self._makers if keep is None else {}

    def maker(self, obj: Any) -> Maker:
        """Returns the function that makes copies of objects of this class."""
        kind = type(obj)
        maker = self._makers.get(address(kind))
        if maker is None:
            maker = self._makers[address(kind)] = self._choose(obj)
            self.kinds.append(kind)
        return maker

    def copy_of(self, obj: Any) -> Any:
        """Returns what stands for an object in the copy, perhaps still empty."""
        if type(obj) in ATOMS:
            return obj
        new = self.memo.get(address(obj), _MISSING)
        if new is not _MISSING:
            return new
        if self.keep is not None and self.keep(obj):
            self.memo[address(obj)] = obj
            return obj
        return self.maker(obj)(self, obj)

    def translate(self, state: dict[str, Any]) -> bool:
        """Puts the copy of each value in its place.

        Returns:
            Whether there may be ids among them, which are to be translated later.
        """
        memo, makers = self.memo, self._quick_makers
        holds_ids = False
        for name, value in state.items():
            kind = type(value)
            if kind in ATOMS:
                if kind is int and value > LARGE:
                    holds_ids = True
                continue
            key = address(value)
            if key in memo:
                state[name] = memo[key]
            elif kind is tuple and ATOMS.issuperset(map(type, value)):
                holds_ids = holds_ids or may_hold_ids(value)
            elif (maker := makers.get(address(kind))) is not None:
                state[name] = maker(self, value)
            else:
                state[name] = self.copy_of(value)
        return holds_ids

    def copy_items(self, state: dict[str, Any], target: dict[str, Any]) -> None:
        """Puts copies of a dict's values into another dict."""
        copies = dict.copy(state)
        holds_ids = self.translate(copies)
        target.update(copies)
        if holds_ids:
            self.with_ids.append(target)

    def copies_of(self, items: list[Any]) -> list[Any]:
        """Returns a new list, of the copies of items."""
        return [self.copy_of(item) for item in list.__iter__(items)]

    def settle(self, state: dict[str, Any]) -> bool:
        """Puts copies in the place of values, until one is neither simple nor known.

        Returns:
            Whether it came to the end.
        """
        memo, makers = self.memo, self._quick_makers
        for name, value in state.items():
            kind = type(value)
            if kind in ATOMS:
                if kind is int and value > LARGE:
                    return False
                continue
            key = address(value)
            if key in memo:
                state[name] = memo[key]
            elif kind is tuple:
                if not ATOMS.issuperset(map(type, value)) or may_hold_ids(value):
                    return False
            else:
                bare_copy = getattr(makers.get(address(kind)), "bare_copy", None)
                copy = None if bare_copy is None else bare_copy(value)
                if copy is None:
                    return False
                state[name] = memo[key] = copy
        return True

    def remember(self, obj: Any, new: Any) -> Any:
        """Notes the copy of an object, and returns it."""
        self.memo[address(obj)] = new
        return new

    def known(self, obj: Any) -> Any:
        """Returns the copy of an object that the walk has met, or None."""
        return self.memo.get(address(obj))

    def stand_in(self, obj: Any) -> Any:
        """Returns the copy of an object, or the object if the walk never met it."""
        return self.memo.get(address(obj), obj)

    def known_items(self, items: list[Any]) -> list[Any]:
        """Returns the copies of those items of a list that the walk has met."""
        memo = self.memo
        keys = map(address, list.__iter__(items))
        return [memo[key] for key in keys if key in memo]

    def fill_later(self, fill: Fill, obj: Any, new: Any) -> None:
        """Schedules `fill(walk, obj, new)`, which gives a shell its contents."""
        self.pending.append((fill, obj, new))
