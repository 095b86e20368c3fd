"""What a walk puts off.

A shell is filled later, so that nothing recurses. Whatever looks into copies, a hash or
a constructor, waits until they are complete. Weak references wait longest: only when
nothing else is left to be found is it known which of their targets were copied.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ._collector import Glances
from ._core import Core, Fill, Keep, Maker
from ._identity import address
from ._makers import Waiting, aimed_at_copy, in_order, plain_parts


class Agenda(Core):
    """The work that is left while a graph of objects is copied.

    Args:
        choose: Decides, by an object, who makes copies of objects of its class.
        keep: Asked of each object: should both models share it?
    """

    def __init__(
        self,
        choose: Callable[[Any], Maker],
        keep: Keep | None,
    ) -> None:
        super().__init__(choose, keep)
        self._glances = Glances()
        self.clear_agenda()

    def clear_agenda(self) -> None:
        """Forgets what was put off."""
        self.pending.clear()
        self.with_ids.clear()
        self.node_lists.clear()
        self._hashed: dict[int, list[Waiting]] = {}
        self._later: list[Callable[[], None]] = []
        self._references: list[weakref.ref[Any]] = []
        # Whose contents were read while weak references in them waited.
        self._holders: dict[int, tuple[Fill, Any, Any]] = {}
        self._completing: set[int] = set()

    # --- for makers and copiers ----------------------------------------------

    def hash_later(
        self, obj: Any, action: Callable[[], None], parts: Iterable[Any]
    ) -> None:
        """Schedules what needs complete, hashable copies.

        Args:
            obj: Whose copy is to be completed.
            action: Completes it.
            parts: What the action looks into; their copies are completed before.
        """
        entry = obj, action, list(parts)
        self._hashed.setdefault(address(obj), []).append(entry)

    def later(self, action: Callable[[], None]) -> None:
        """Schedules an action for when the rest has been visited."""
        self._later.append(action)

    def note_reference(self, reference: weakref.ref[Any]) -> Any:
        """Notes a weak reference: its target may be met later, or never."""
        self._references.append(reference)
        return reference

    def count_references(self) -> int:
        """Returns how many weak references wait for their targets.

        What cannot be filled again is not to be remembered while one inside waits.
        """
        return len(self._references)

    def complete(self, obj: Any, *parts: Any) -> bool:
        """Fills the copies of parts at once, for somebody who looks into them now.

        A constructor reads what it is given, and a hash is made of attributes.

        Args:
            obj: Whose parts they are.
            *parts: The parts, whose copies may be shells.

        Returns:
            Whether `obj` is still to be made. If parts hold it in turn, it has been.
        """
        if address(obj) in self._completing:
            return True
        self._completing.add(address(obj))
        pending, places, known = self.pending, dict[int, int](), 0
        met: dict[int, None] = {}
        for part in plain_parts(self, parts):
            met[address(part)] = None
            for place in range(known, len(pending)):
                places[address(pending[place][1])] = place
            known = len(pending)
            if address(part) in places:
                self._fill_at(places[address(part)])
        for key in met:
            if all(map(_is_hashed_by_identity, self._hashed.get(key, ()))):
                for _, action, _ in self._hashed.pop(key, ()):
                    action()
        self._completing.discard(address(obj))
        return address(obj) not in self.memo

    def is_completing(self, obj: Any) -> bool:
        """Tells whether the parts of an object are being filled, which hold it."""
        return address(obj) in self._completing

    # --- working it off -------------------------------------------------------

    def work_off(self) -> None:
        """Does all of it, until nothing new is found."""
        self._fill_shells()
        while self._hashed:
            waiting, self._hashed = self._hashed, {}
            for action in in_order([x for same in waiting.values() for x in same]):
                action()
            self._fill_shells()

    def _fill_shells(self) -> None:
        pending, references, filled = self.pending, self._references, 0
        while True:
            known = len(references)
            while pending:
                fill, obj, new = pending.pop()
                fill(self, obj, new)
                filled += 1
                if not filled % 64:
                    self._glances.glance()
                if len(references) != known:
                    known = len(references)
                    self._holders[address(obj)] = (fill, obj, new)
            if self._later:
                action = self._later.pop()
                action()
                if len(references) != known:
                    self._holders[address(action)] = (_act, action, None)
            elif references:
                self._renew_references()
            else:
                break

    def _fill_at(self, place: int) -> None:
        """Fills a shell ahead of its turn."""
        fill, obj, new = self.pending[place]
        self.pending[place] = (_do_nothing, None, None)
        known = len(self._references)
        fill(self, obj, new)
        if len(self._references) != known:
            self._holders[address(obj)] = (fill, obj, new)

    def _renew_references(self) -> None:
        """Points weak references at copies, where their targets were copied."""
        references = self._references.copy()
        self._references.clear()
        for reference in references:
            if address(reference) not in self.memo:
                self.memo[address(reference)] = aimed_at_copy(self, reference)
        holders, self._holders = self._holders, {}
        for fill, obj, new in holders.values():
            fill(self, obj, new)


def _is_hashed_by_identity(waiting: Waiting) -> bool:
    """Tells whether copies need not be complete to be hashed, as layers need not."""
    _, _, parts = waiting
    by_identity: Any = object.__hash__
    return bool(parts) and all(type(x).__hash__ is by_identity for x in parts)


def _do_nothing(walk: Any, obj: Any, new: Any) -> None:
    pass


def _act(walk: Any, action: Callable[[], None], new: Any) -> None:
    action()
