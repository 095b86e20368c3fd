"""Copies of large blocks of memory on the host.

torch copies a large tensor with all its threads, each of which waits for the others at
the end. If another program has one of the cores, every tensor waits for it: a network
of 10 MB took 90 ms, rather than 1.5. Here a thread takes the next piece when it is done
with one, and the last piece is the only one to wait for.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable

# Where a block is in memory, and where its copy is to be: (target, source, size).
Block = tuple[int, int, int]

_PIECE = 1 << 22
# It takes as long to start a thread as to copy a piece of this size.
_WORTH_A_THREAD = 1 << 23


def copy_blocks(blocks: Iterable[Block], threads: int, owners: object) -> None:
    """Copies memory to memory.

    Args:
        blocks: What goes where; no two targets overlap.
        threads: How many threads may be used.
        owners: Whose memory it is. It lives as long as anybody writes to it.
    """
    pieces = [
        (target + start, source + start, min(_PIECE, size - start))
        for target, source, size in blocks
        for start in range(0, size, _PIECE)
    ]
    useful = sum(size for _, _, size in pieces) // _WORTH_A_THREAD
    helpers = [
        threading.Thread(target=_copy_pieces, args=(pieces, owners))
        for _ in range(min(threads, useful) - 1)
    ]
    try:
        for helper in helpers:
            helper.start()
        _copy_pieces(pieces, owners)
    finally:
        pieces.clear()
        for helper in helpers:
            helper.join()


def _copy_pieces(pieces: list[Block], owners: object) -> None:
    while pieces:
        try:
            piece = pieces.pop()
        except IndexError:  # Another thread was quicker.
            return
        ctypes.memmove(*piece)
