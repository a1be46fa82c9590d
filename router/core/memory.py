"""How the C allocator of this process treats large blocks. Linux with glibc; elsewhere nothing.

A request body of some MB is a few large blocks that live for milliseconds. By default glibc gives
their pages back at once, and the kernel clears and maps them again for the next one: more than half
of what such a body costs (4 MB bodies: 1.96 ms of CPU per MB with the default, 1.22 without).
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
KEPT_BYTES = 32 << 20  # free memory kept for the next one; as much as glibc allows for a block


def keep_large_blocks() -> bool:
    """Let freed blocks of up to `KEPT_BYTES` be used again. False: not to be had here."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    options = (
        (_M_MMAP_THRESHOLD, KEPT_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
        (_M_TOP_PAD, 1 << 20),
    )
    return all(bool(mallopt(option, value)) for option, value in options)
