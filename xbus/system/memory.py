"""Sets how the C library hands memory out in the programs of the bus.

By default glibc gives large blocks back to the system as soon as they are free, and has many arenas. The bus copies a
large item several times on its way. For each copy of a megabyte the system clears 250 pages anew. That takes several
times as long as the copy. With many arenas, memory that one thread fills and another one frees leaves gaps.
"""

import ctypes

LARGEST_KEPT_BYTES = 32 * 1024 * 1024
"""Blocks below this size come out of memory that is kept; the largest size that glibc takes here."""

KEPT_BYTES = 16 * 1024 * 1024
"""Bytes of freed memory that each arena keeps. More spares work where items are larger, and is lost to others."""

ARENAS = 2
"""Arenas of all threads together. More let threads wait less for each other, and leave more gaps."""

# <malloc.h> of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def reuse_large_blocks() -> None:
    """Have freed memory used again, for the whole process; to be called before it starts threads.

    Other C libraries go on as they do: nothing but speed depends on it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
