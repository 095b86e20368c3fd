"""Large pages for large copies.

Linux hands memory out page by page, when a page is first written to. In pages of 4 kB
that takes as long as the copying itself. Most systems leave it to a program to ask for
pages of 2 MB, as NumPy does for its arrays. The advice changes nothing but the time:
the same bytes lie at the same addresses.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import lru_cache
from typing import Any

# As NumPy does: below, too little of a block lies in whole pages of 2 MB.
_WORTH_IT = 1 << 22


def prefer(address: int, size: int) -> None:
    """Asks for large pages under memory to which nobody has written yet.

    Args:
        address: Where the memory begins.
        size: Its number of bytes.
    """
    advise = _madvise() if size >= _WORTH_IT else None
    if advise is not None:
        start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
        advise(start, address + size - start, mmap.MADV_HUGEPAGE)


@lru_cache
def _madvise() -> Any:
    """Returns the function of the system; None where there is no such advice."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return advise
