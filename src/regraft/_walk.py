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

import functools
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from . import _backends, _functions, _keras
from ._agenda import Agenda
from ._atoms import ATOMS
from ._collector import without_collector
from ._core import Keep
from ._errors import CopyError, OutOfMemoryError, explain
from ._identity import address, may_hold_ids, new_id, replace_values, with_new_ids
from ._makers import choose_maker, plain_parts
from ._memory import Memory
from ._parts import is_model_state, path_between
from ._rules import Rules
from ._wiring import Wiring


class Walk(Agenda):
    """Copies everything that can be reached from `root`.

    Args:
        root: The object to copy.
        rules: What should be different in the copy.
        keep: Asked of each object: should both models share it?
    """

    def __init__(
        self,
        root: Any,
        *,
        rules: Rules | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.root = root
        self.rules = rules = rules or Rules()
        super().__init__(lambda obj: rules.maker(obj) or choose_maker(obj), keep)
        self.backend = _backends.active()
        self._rebound: set[int] = set()
        # What was tried, and whether it can be copied.
        self._trials: dict[int, tuple[Any, bool]] = {}
        self.memory = Memory()
        # Whose copies somebody else makes, after others have met their variables.
        self._first: list[Any] = []
        self._begin()

    # What wires the calls of a copy.
    new_wiring = Wiring

    def _begin(self) -> None:
        self.clear_agenda()
        # Pairs (original, copy), in the order of discovery.
        self.variables: list[tuple[Any, Any]] = []
        self._paired: list[tuple[Any, Any]] = []
        self.operations: list[tuple[Any, Any]] = []
        self.optimizers: list[tuple[Any, Any]] = []
        self.metrics: list[tuple[Any, Any]] = []
        self.seed_generators: list[tuple[Any, Any]] = []
        self.initializers: list[tuple[Any, Any]] = []
        self.functions: list[types.FunctionType] = []
        self.wiring = self.new_wiring()
        self._trackers: list[tuple[Any, Any]] = []
        self._allocations: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        self.deepcopied: Any = None  # The memo of objects that copy themselves.
        # Ids are the memo's keys: what was made on the fly must outlive the walk.
        self._alive: list[Any] = []

    @functools.cached_property
    def cleared_gradients(self) -> set[int]:
        """The ids of parameters whose gradients nobody will use."""
        return _keras.cleared_gradients(self.root)

    # --- for verbs -----------------------------------------------------------

    def run(self) -> Any:
        """Makes the copy and returns it."""
        try:
            with without_collector(), self.backend.lasting():
                new = self._visit()
                self._allocate()  # Devices copy while the rest is being wired.
                self.wiring.finish(self)
            for _, optimizer in self.optimizers:
                pairs = [*self.variables, *self._paired]
                _keras.reindex_optimizer(optimizer, pairs)
            return new
        except BaseException as error:
            self.release()
            if isinstance(error, RecursionError):
                raise self._too_deep() from error
            raise

    def survey(self) -> Walk:
        """Visits everything without taking memory, to see what is there."""
        self._visit()
        return self

    def path_of(self, obj: Any) -> str:
        """Returns the way from the root to an object, for a message."""
        name = getattr(self.root, "name", None) or type(self.root).__name__
        return path_between(self.root, obj, name)

    # --- for makers and copiers ----------------------------------------------

    def can_copy(self, obj: Any) -> bool:
        """Tells whether nothing in an object would be refused."""
        key = address(obj)
        if key not in self._trials:
            trial = Walk(obj, keep=self.keep)
            trial.memo.update(self.memo)
            trial._trials = self._trials  # What is inside is tried once.
            try:
                trial.survey()
                self._trials[key] = obj, True
            except CopyError:
                self._trials[key] = obj, False
        return self._trials[key][1]

    def copy_items_later(self, state: dict[str, Any], target: dict[str, Any]) -> None:
        """Does `copy_items` when the rest has been visited."""
        self.later(lambda: self.copy_items(state, target))

    def hold(self, obj: Any) -> Any:
        """Keeps an object that was made on the fly, whose id must stay taken."""
        self._alive.append(obj)
        return obj

    def allocate(self, fill: Callable[[Any, Any], None], new: Any, value: Any) -> None:
        """Schedules `fill(new, value)`, which takes memory for a value."""
        self._allocations.append((fill, new, value))

    def pair_layers(self, layer: Any, new: Any) -> None:
        """Lets what is in a layer that a copier made stand for what is in its original.

        Optimizers, and others, hold it as well, and may have been met before.
        """
        for old, twin in _keras.parts_alike(layer, new):
            known = self.known(old)
            # Some are to stand for themselves, others the copier has from the walk.
            if known is old or known is twin or self.rules.maker(old) is not None:
                continue
            if known is not None and layer not in self._first:
                self._first.append(layer)
            self.remember(old, twin)
            if isinstance(old, _keras.Variable):
                self._paired.append((old, twin))
                self.remember(_keras.raw_value(old), _keras.raw_value(twin))

    def note_tracker(self, tracker: Any, new: Any) -> None:
        """Notes a tracker, whose index of identities is written at the end."""
        self._trackers.append((tracker, new))

    def note_rebound(self, cells: Iterable[Any]) -> None:
        """Notes cells to which a function assigns: whoever reads them is copied."""
        self._rebound.update(map(address, cells))

    def new_key(self, key: Any) -> Any:
        """Translates a key that is the `id` of an object, or has one in it."""
        kind = type(key)
        if kind is int:
            return new_id(key, self.memo)
        if (kind is tuple or kind is frozenset) and may_hold_ids(key):
            return kind(map(self.new_key, key))
        return self.copy_of(key)

    def meet(self, *parts: Any) -> None:
        """Copies the pieces of the model that somebody holds who copies himself.

        He would copy a layer by its configuration, and share a function.
        """
        for part in plain_parts(self, parts):
            if self._belongs_to_model(part):
                self.copy_of(part)

    def holds_originals(self, *parts: Any) -> bool:
        """Tells whether pieces of the original are in what is to be a copy."""
        mine = filter(self._belongs_to_model, plain_parts(self, parts))
        return any(self.stand_in(part) is not part for part in mine)

    def _belongs_to_model(self, part: Any) -> bool:
        is_function = isinstance(part, types.FunctionType)
        return is_model_state(part) or (is_function and self.must_copy(part))

    # --- phases --------------------------------------------------------------

    def _visit(self) -> Any:
        """Copies all but the values; twice, if more turns out to be shared inside."""
        given, known = self.memo.copy(), self.memory.count_common()
        new = self._copy_root()
        is_missed = self._rebound and any(map(self._was_missed, self.functions))
        has_more = self.memory.count_common() != known or self._first
        if not (is_missed or has_more):
            return new
        self.memory.begin_again()
        self.memo.clear()
        self.memo.update(given)
        self._begin()
        for layer in self._first:
            self.copy_of(layer)
        return self._copy_root()

    def _copy_root(self) -> Any:
        new = self.copy_of(self.root)
        self.work_off()
        for container in self.with_ids:
            replace_values(container, lambda value: with_new_ids(value, self.memo))
        for tracker, twin in self._trackers:
            _keras.index_tracker(tracker, twin, self.memo)
        return new

    def _was_missed(self, function: types.FunctionType) -> bool:
        """Tells whether a function is shared that reads what others assign to."""
        return self.known(function) is function and self.must_copy(function)

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

    def _too_deep(self) -> CopyError:
        """What must be complete before its owner is made cannot wait for its turn."""
        return CopyError(
            explain(
                "Something is nested too deep to be copied: an object that is made of "
                "another one, as a frozenset is, or a class with a `__reduce__`.",
                where=self.path_of(self.root),
                expected=f"less than {sys.getrecursionlimit()} calls of Python inside "
                "each other",
                received="more of them",
                fix="raise the limit with `sys.setrecursionlimit`, or share the object "
                "between both models with `keep=`",
            )
        )

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
        """Frees what a copy that failed has taken: shells are full of cycles."""
        values = [_keras.raw_value(new) for _, new in self.variables]
        self.backend.release([value for value in values if value is not None])
        for _, new in self.variables:
            _keras.set_raw_value(new, None)
        self.forget()

    def forget(self) -> None:
        """Lets go of all that was met and made."""
        self.memo.clear()
        self._begin()

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
