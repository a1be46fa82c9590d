"""Converts a trace's block IDs to the chained 64-bit hashes of the prefix index and the engines.

Public traces number their blocks 0, 1, 2, …. Such numbers would all fall into one shard of the
prefix index, which selects a shard by the highest six bits (`router/fleet/prefix/index.py`). In
some traces the IDs are not chained: an ID of Qwen-Bailian stands for 16 tokens at any position.
Therefore each hash here depends on the previous one. Two prompts have a common prefix of hashes
exactly as long as the common prefix of their IDs, so IDs that are already chained lose nothing.

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
_SALTED: Final = Struct(">HI")  # a hash of six bytes
SALTED_BYTES: Final = _SALTED.size


def chained(ids: Sequence[int]) -> tuple[int, ...]:
    """One 64-bit hash per ID. Each hash depends on all IDs up to its own."""
    hashes: list[int] = []
    add = hashes.append
    before = 0
    for one in ids:
        mixed = ((before ^ one) + 1) * _ODD & _64
        before = mixed ^ mixed >> 32
        add(before)
    return tuple(hashes)


def salted(packed: bytes) -> tuple[int, ...]:
    """The hashes of an access log's blocks: six bytes each, already chained by the router."""
    return tuple([(high << 32 | low) * _ODD & _64 for high, low in _SALTED.iter_unpack(packed)])
