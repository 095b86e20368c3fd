"""The walk: one pass over a model's objects that makes another model.

A built model is a graph of Python objects. The walk visits each object that
can be reached from a root once, remembers its copy by identity, and never
recurses: a mutable object gets an empty shell at once and is filled later, so
cycles close by themselves and depth costs nothing.

Three kinds of work are put off on purpose:

- containers whose keys must be hashed wait until the keys are complete;
- call nodes are wired to their operations when it is known which nodes belong
  to the copy (an operation also lists calls that other models made);
- memory for the values of variables is taken last, when the walk has seen
  everything, so a refusal costs nothing and leaves nothing behind.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from . import _backends, _functions, _keras
from ._atoms import ATOMS
from ._collector import without_collector
from ._errors import OutOfMemoryError, explain
from ._identity import address, address_by_id, new_id
from ._makers import (
    Maker,
    Waiting,
    aimed_at_copy,
    choose_maker,
    in_order,
    is_simple,
    plain_parts,
)
from ._parts import is_model_state, path_between
from ._rules import Rules
from ._wiring import Wiring

_MISSING: Any = object()

Keep = Callable[[Any], bool]
Fill = Callable[[Any, Any, Any], None]


class Walk:
    """Copies everything that can be reached from `root`.

    Args:
        root: The object to copy.
        rules: What should be different in the copy.
        keep: Asked of each object: should both models share it?
    """

    def __init__(
        self, root: Any, *, rules: Rules | None = None, keep: Keep | None = None
    ) -> None:
        self.root = root
        self.rules = rules or Rules()
        self.keep = keep
        self.backend = _backends.active()
        self.memo: dict[int, Any] = {}
        self._makers: dict[type, Maker] = {}
        # Those that may be used without asking `keep`, which wants to see everything.
        self._quick_makers = self._makers if keep is None else {}
        # Empty ones are the most common objects of all: torch's modules hold a dozen.
        self._empties = {dict, list, set, OrderedDict} if keep is None else set()
        self._rebound: set[int] = set()
        self._begin()

    # What wires the calls of a copy.
    new_wiring = Wiring

    def _begin(self) -> None:
        # Pairs (original, copy), in the order of discovery.
        self.variables: list[tuple[Any, Any]] = []
        self.operations: list[tuple[Any, Any]] = []
        self.optimizers: list[tuple[Any, Any]] = []
        self.metrics: list[tuple[Any, Any]] = []
        self.seed_generators: list[tuple[Any, Any]] = []
        self.initializers: list[tuple[Any, Any]] = []
        self.functions: list[types.FunctionType] = []
        self.wiring = self.new_wiring()
        self._trackers: list[tuple[Any, Any]] = []
        self._pending: list[tuple[Fill, Any, Any]] = []
        self._hashed: list[Waiting] = []
        self._later: list[Callable[[], None]] = []
        self._allocations: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        self._references: list[weakref.ref[Any]] = []
        self._completing: set[int] = set()
        self.deepcopied: Any = None  # The memo of objects that copy themselves.
        self._holders: dict[int, tuple[Fill, Any, Any]] = {}
        # Ids are the memo's keys: what was made on the fly must outlive the walk.
        self._alive: list[Any] = []

    # --- for verbs -----------------------------------------------------------

    def run(self) -> Any:
        """Makes the copy and returns it."""
        try:
            with without_collector():
                new = self._visit()
                self._allocate()  # Devices copy while the rest is being wired.
                self.wiring.finish(self.memo)
            for _, optimizer in self.optimizers:
                _keras.reindex_optimizer(optimizer, self.variables)
            return new
        except BaseException:
            self.release()
            raise

    def survey(self) -> Walk:
        """Visits everything without taking memory, to see what is there."""
        self._visit()
        return self

    def kinds(self) -> list[type]:
        """Returns the classes of what the walk has met, apart from atoms."""
        return list(self._makers)

    def known(self, obj: Any) -> Any:
        """Returns the copy of an object that the walk has met, or None."""
        return self.memo.get(address(obj))

    def stand_in(self, obj: Any) -> Any:
        """Returns the copy of an object, or the object if the walk never met it."""
        return self.memo.get(address(obj), obj)

    def path_of(self, obj: Any) -> str:
        """Returns the way from the root to an object, for a message."""
        name = getattr(self.root, "name", None) or type(self.root).__name__
        return path_between(self.root, obj, name)

    # --- for makers and copiers ----------------------------------------------

    def copy_of(self, obj: Any) -> Any:
        """Returns what stands for an object in the copy, perhaps still empty."""
        kind = type(obj)
        if kind in ATOMS:
            return obj
        new = self.memo.get(address(obj), _MISSING)
        if new is not _MISSING:
            return new
        if self.keep is not None and self.keep(obj):
            self.memo[address(obj)] = obj
            return obj
        maker = self._makers.get(kind) or self.maker(obj)
        return maker(self, obj)

    def copy_items(self, state: dict[str, Any], target: dict[str, Any]) -> None:
        """Puts copies of a dict's values into another dict."""
        copies = state.copy()
        self.translate(copies)
        target.update(copies)

    def translate(self, state: dict[str, Any]) -> None:
        """Puts the copy of each value in its place."""
        memo, makers, empties = self.memo, self._quick_makers, self._empties
        for name, value in state.items():
            kind = type(value)
            if kind in ATOMS:
                continue
            key = address(value)
            if key in memo:
                state[name] = memo[key]
            elif kind in empties and not value:
                state[name] = memo[key] = kind()
            elif kind is tuple and ATOMS.issuperset(map(type, value)):
                continue
            elif kind in makers:
                state[name] = makers[kind](self, value)
            else:
                state[name] = self.copy_of(value)

    def settle(self, state: dict[str, Any]) -> bool:
        """Puts copies in the place of values that are simple or known.

        Returns:
            Whether all of them were.
        """
        memo, empties = self.memo, self._empties
        for name, value in state.items():
            kind = type(value)
            if kind in ATOMS:
                continue
            key = address(value)
            if key in memo:
                state[name] = memo[key]
            elif kind is tuple:
                if not ATOMS.issuperset(map(type, value)):
                    return False
            elif kind is dict and dict in empties and is_simple(value):
                state[name] = memo[key] = value.copy()
            elif kind in empties and not value:
                state[name] = memo[key] = kind()
            else:
                return False
        return True

    def maker(self, obj: Any) -> Maker:
        """Returns the function that makes copies of objects of this class."""
        kind = type(obj)
        maker = self._makers.get(kind)
        if maker is None:
            maker = self._makers[kind] = choose_maker(obj)
        return maker

    def remember(self, obj: Any, new: Any) -> Any:
        """Notes the copy of an object."""
        self.memo[address(obj)] = new
        return new

    def hold(self, obj: Any) -> Any:
        """Keeps an object that was made on the fly, whose id must stay taken."""
        self._alive.append(obj)
        return obj

    def fill_later(self, fill: Fill, obj: Any, new: Any) -> None:
        """Schedules `fill(walk, obj, new)`, which gives a shell its contents."""
        self._pending.append((fill, obj, new))

    def hash_later(
        self, obj: Any, action: Callable[[], None], parts: Iterable[Any]
    ) -> None:
        """Schedules what needs complete, hashable copies.

        Args:
            obj: Whose copy is to be completed.
            action: Completes it.
            parts: What the action looks into; their copies are completed before.
        """
        self._hashed.append((obj, action, list(parts)))

    def later(self, action: Callable[[], None]) -> None:
        """Schedules an action for when the rest has been visited."""
        self._later.append(action)

    def allocate(self, fill: Callable[[Any, Any], None], new: Any, value: Any) -> None:
        """Schedules `fill(new, value)`, which takes memory for a value."""
        self._allocations.append((fill, new, value))

    def note_tracker(self, tracker: Any, new: Any) -> None:
        """Notes a tracker, whose index of identities is written at the end."""
        self._trackers.append((tracker, new))

    def note_rebound(self, cells: Iterable[Any]) -> None:
        """Notes cells to which a function assigns: whoever reads them is copied."""
        self._rebound.update(map(address, cells))

    def note_reference(self, reference: weakref.ref[Any]) -> Any:
        """Notes a weak reference: its target may be met later, or never."""
        self._references.append(reference)
        return reference

    def count_references(self) -> int:
        """Returns how many weak references wait for their targets.

        What cannot be filled again is not to be remembered while one inside waits.
        """
        return len(self._references)

    def new_key(self, key: Any) -> Any:
        """Translates a key that is the `id` of an object."""
        if type(key) is int:
            return new_id(key, self.memo)
        if type(key) is tuple and any(type(x) is int for x in key):
            numbers = (address_by_id(x) for x in key if type(x) is int)
            if any(number in self.memo for number in numbers):
                return tuple(map(self.new_key, key))
        return self.copy_of(key)

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
        pending, places, known = self._pending, dict[int, int](), 0
        for part in plain_parts(self, parts):
            for place in range(known, len(pending)):
                places[address(pending[place][1])] = place
            known = len(pending)
            if address(part) in places:
                self._fill_at(places[address(part)])
        self._completing.discard(address(obj))
        return address(obj) not in self.memo

    def is_completing(self, obj: Any) -> bool:
        """Tells whether the parts of an object are being filled, which hold it."""
        return address(obj) in self._completing

    def meet(self, *parts: Any) -> None:
        """Copies the pieces of the model that somebody holds who copies himself.

        He would copy a layer by its configuration.
        """
        for part in plain_parts(self, parts):
            if is_model_state(part):
                self.copy_of(part)

    def _fill_at(self, place: int) -> None:
        """Fills a shell ahead of its turn."""
        fill, obj, new = self._pending[place]
        self._pending[place] = (_do_nothing, None, None)
        count = len(self._references)
        fill(self, obj, new)
        if len(self._references) != count:
            self._holders[address(obj)] = (fill, obj, new)

    # --- phases --------------------------------------------------------------

    def _visit(self) -> Any:
        """Copies all but the values; twice, if functions were taken for code."""
        given = self.memo.copy()
        new = self.copy_of(self.root)
        self._drain()
        if not self._rebound or not any(map(self._was_missed, self.functions)):
            return new
        self.memo.clear()
        self.memo.update(given)
        self._begin()
        new = self.copy_of(self.root)
        self._drain()
        return new

    def _was_missed(self, function: types.FunctionType) -> bool:
        """Tells whether a function is shared that reads what others assign to."""
        return self.known(function) is function and self.must_copy(function)

    def _drain(self) -> None:
        """Fills shells until nothing new is found."""
        pending, seen = self._pending, len(self._references)
        while True:
            while pending:
                fill, obj, new = pending.pop()
                fill(self, obj, new)
                if len(self._references) != seen:
                    seen = len(self._references)
                    self._holders[address(obj)] = (fill, obj, new)
            if self._later:
                action = self._later.pop()
                action()
                if len(self._references) != seen:
                    seen = len(self._references)
                    self._holders[address(action)] = (_act, action, None)
            elif self._references:
                self._renew_references()
                seen = len(self._references)
            else:
                break
        while self._hashed:
            waiting, self._hashed = self._hashed, []
            for action in in_order(waiting):
                action()
        for tracker, new in self._trackers:
            _keras.index_tracker(tracker, new, self.memo)

    def _renew_references(self) -> None:
        """Points weak references at copies, where their targets were copied."""
        references, self._references = self._references, []
        for reference in references:
            if address(reference) not in self.memo:
                self.memo[address(reference)] = aimed_at_copy(self, reference)
        holders, self._holders = self._holders, {}
        for fill, obj, new in holders.values():
            fill(self, obj, new)

    def _allocate(self) -> None:
        """Takes the memory: from here on nothing new is discovered."""
        pairs = [(old, new, self.rules.value(old)) for old, new in self.variables]
        pairs = [pair for pair in pairs if pair[2] is not None]
        layouts = self.rules.layouts(self)
        found = (
            None if layouts is None else [layouts[address(old)] for old, _, _ in pairs]
        )
        try:
            copies = self.backend.copy_values([v for _, _, v in pairs], self, found)
            for (old, new, _), value in zip(pairs, copies, strict=True):
                _keras.set_raw_value(new, value)
                if layouts is not None or self.rules.device is not None:
                    layout = None if layouts is None else layouts[address(old)]
                    _keras.set_layout(new, layout)
            for fill, new, value in self._allocations:
                fill(new, value)
            self._allocations.clear()  # They know the walk, which is not needed again.
        except Exception as error:
            if self.backend.is_out_of_memory(error):
                raise self._no_room(error) from error
            raise

    def _no_room(self, error: Exception) -> OutOfMemoryError:
        sizes = [_keras.size_in_bytes(old) for old, _ in self.variables]
        place = "where the original lies" if self.rules.device is None else "there"
        return OutOfMemoryError(
            explain(
                "A device has no memory left for the copy.",
                where=self.path_of(self.root),
                expected=f"{sum(sizes):,} bytes, {place}",
                received=str(error).strip().partition("\n")[0][:200],
                fix="free memory, choose another device with `device=`, or lay the "
                "copy out over several with `distribution=`",
            )
        )

    def release(self) -> None:
        """Lets go of everything at once: shells are full of reference cycles."""
        values = [_keras.raw_value(new) for _, new in self.variables]
        self.backend.release([value for value in values if value is not None])
        for _, new in self.variables:
            _keras.set_raw_value(new, None)
        for collection in (self.memo, self.variables, self._alive, self._allocations):
            collection.clear()

    # --- questions about functions -------------------------------------------

    def must_copy(self, function: types.FunctionType) -> bool:
        """Tells whether a function carries state that a copy must have anew."""
        return _functions.holds_state(
            function,
            is_shared=self._is_shared,
            is_model_state=is_model_state,
            rebound=self._rebound,
        )

    def _is_shared(self, obj: Any) -> bool:
        if type(obj) in ATOMS or (self.keep is not None and self.keep(obj)):
            return True
        return getattr(self.maker(obj), "shares", False)


def _do_nothing(walk: Any, obj: Any, new: Any) -> None:
    pass


def _act(walk: Any, action: Callable[[], None], new: Any) -> None:
    action()
