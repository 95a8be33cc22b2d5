"""Keeps the memory that one call of a function frees for the next one.

A gradient's traces take megabytes, which each call allocates and frees. The GNU C library gives
free memory back to the system where there is more of it than twice the largest block that was
mapped for itself and freed, of blocks up to 32 MiB. So the first call teaches it too little: each
later call has its pages taken and given again, and cleared, which took half of the time of a GRU's
gradient. Once a block of 32 MiB has been freed, up to 64 MiB stay.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_BLOCK = (32 << 20) - (64 << 10)
"""The largest block that counts, in bytes, with room for what is around it."""


@cache
def keep_freed_memory() -> None:
    """Free a large block, none of whose pages were used.

    Other C libraries keep free memory by rules of their own, and so does the GNU one where its
    thresholds are set by the user; to them the block is like any other.
    """
    np.empty(_BLOCK, dtype=np.uint8)
