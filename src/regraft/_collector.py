"""Python's garbage collector, while there is no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Whether the collector rests, and is to go on afterwards.
_rests = False

# How many new objects the first and the last glance are worth: the first lie in a
# processor's fastest caches.
_FIRST, _LAST = 1 << 12, 1 << 19


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
    then, and takes two or three times as long to look at. After ten glances the
    collector would look at everything that lives, so each waits for twice as many
    objects as the one before.
    """

    def __init__(self) -> None:
        self._worth = _FIRST

    def glance(self) -> None:
        """Looks at what was made since the last time, if that is much."""
        if self._worth <= _LAST and _rests and gc.get_count()[0] > self._worth:
            self._worth *= 2
            gc.collect(0)
