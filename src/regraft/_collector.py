"""Python's garbage collector, while there is no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Spares the garbage collector from going through all that is being made.

    It would look at every object of the process again and again, for nothing:
    what is made here is no garbage. If several threads walk at once, the one that
    found the collector running starts it again.
    """
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            gc.enable()
