"""Python's garbage collector, while there is no garbage."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

# Whether the collector rests, and is to go on afterwards.
_rests = False

# After how many looks at everything something huge was made old.
_made_old_after = -1

# How many new objects still lie in a processor's fastest caches, and in its others.
_FEW, _MANY = 1 << 12, 100_000

# After so many looks at young objects the collector would look at older ones as well.
_GLANCES = 10

# How many of the objects of something huge are looked at together.
_PIECE = 1 << 15

# Since then there are no generations between the young and the old.
_HAS_MIDDLE = sys.version_info < (3, 14)


@contextmanager
def without_collector() -> Iterator[None]:
    """Spares the garbage collector from going through all that is being made.

    It would look at every object of the process again and again, for nothing:
    what is made here is no garbage. If several threads walk at once, the one that
    found the collector running starts it again.
    """
    global _rests
    was_running = gc.isenabled()
    gc.disable()
    _rests = _rests or was_running
    try:
        yield
    finally:
        if was_running:
            _rests = False
            gc.enable()


class Glances:
    """Looks at what was made, which the collector does once in any case.

    It does so as soon as it runs again. What was made first has left the caches by
    then, and takes two or three times as long to look at. But who looks more often has
    the collector look at everything sooner. So there are glances at little only if it
    looked at older objects just now; each waits for twice as many as the one before.

    Most of what is huge is looked at piece by piece, and is old from then on. Until the
    collector has looked at everything, which is when old garbage goes, nothing else is
    made old.
    """

    def __init__(self) -> None:
        self._left = _GLANCES - 1  # One is to come in any case.
        self._worth = _FEW
        self._seen = 0

    def glance(self) -> None:
        """Looks at what was made since the last time, if that is worth it."""
        if not _rests:
            return
        young, looks, _ = gc.get_count()
        if self._seen + young > _MANY and self._makes_old:
            if young > _PIECE:
                self._look(1, young)
            return
        worth = self._worth if looks < _GLANCES // 3 else _MANY
        if self._left and young > worth:
            self._left -= 1
            self._worth = min(2 * self._worth, _MANY)
            self._look(0, young)

    def _look(self, generation: int, young: int) -> None:
        self._seen += young
        gc.collect(generation)

    @cached_property
    def _makes_old(self) -> bool:
        """Tells whether everything was looked at since this was true."""
        global _made_old_after
        full_looks = gc.get_stats()[2]["collections"]
        if full_looks == _made_old_after or not _HAS_MIDDLE:
            return False
        _made_old_after = full_looks
        return True
