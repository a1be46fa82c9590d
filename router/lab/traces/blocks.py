"""Converts the block IDs of a trace to the 64-bit hashes that the prefix index and the simulated
engines use.

Public traces number their blocks 0, 1, 2, …. Such numbers would all fall into one shard of the
prefix index, which selects a shard by the highest six bits (`router/fleet/prefix/index.py`). In
some traces an ID does not depend on the blocks before it. Therefore each hash here depends on the
previous hash. The
common prefix of two prompts has as many hashes as IDs. So the conversion also changes nothing for
IDs that already depend on the blocks before them.

Must never: give different hashes in another process or on another machine, as Python's `hash` does
for strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

_64: Final = (1 << 64) - 1
# 2^64 / golden ratio, odd. Multiplication by an odd number is a bijection modulo 2^64, and the
# highest bits of the product depend on all lower bits (Knuth, TAOCP 3, 6.4).
_ODD: Final = 0x9E3779B97F4A7C15
_SALTED: Final = Struct(">HI")  # the hash of one block in an access log: six bytes
SALTED_BYTES: Final = _SALTED.size


def chained(ids: Sequence[int]) -> tuple[int, ...]:
    """Return one 64-bit hash per ID. Each hash depends on its own ID and on all IDs before it."""
    hashes: list[int] = []
    add = hashes.append
    before = 0
    for one in ids:
        mixed = ((before ^ one) + 1) * _ODD & _64
        before = mixed ^ mixed >> 32
        add(before)
    return tuple(hashes)


def salted(packed: bytes) -> tuple[int, ...]:
    """Convert the block hashes of an access log, six bytes each, to 64-bit hashes.

    Each hash of the log already depends on the blocks before it.
    """
    return tuple([(high << 32 | low) * _ODD & _64 for high, low in _SALTED.iter_unpack(packed)])
