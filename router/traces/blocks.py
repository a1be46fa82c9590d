"""A trace's block ids as the chained 64-bit hashes that the prefix index and the engines want.

Public traces number their blocks 0, 1, 2, …: all of them would fall into one of the 64 shards of
the prefix index (`router/fleet/prefix/index.py` goes by the highest six bits), and not all of them
are chained (Qwen-Bailian's id stands for sixteen tokens, wherever they are). So ids are chained
here, each hash the seed of the next, which changes nothing for ids that are chained already: two
prompts have a common leading run of hashes exactly as long as that of their ids.

Must never: differ from run to run or machine to machine, as `hash` of a string would.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

_64: Final = (1 << 64) - 1
# 2^64 / golden ratio, odd: multiplying by it is one to one, and its highest bits hang on all bits
# below them (Knuth, TAOCP 3, 6.4).
_ODD: Final = 0x9E3779B97F4A7C15
_SALTED: Final = Struct(">HI")  # six bytes
SALTED_BYTES: Final = _SALTED.size


def chained(ids: Sequence[int]) -> tuple[int, ...]:
    """One 64-bit hash per id, each of which stands for all ids up to its own."""
    hashes: list[int] = []
    add = hashes.append
    before = 0
    for one in ids:
        mixed = ((before ^ one) + 1) * _ODD & _64
        before = mixed ^ mixed >> 32
        add(before)
    return tuple(hashes)


def salted(packed: bytes) -> tuple[int, ...]:
    """The blocks of an access log: six bytes each, chained by who wrote them."""
    return tuple([(high << 32 | low) * _ODD & _64 for high, low in _SALTED.iter_unpack(packed)])
