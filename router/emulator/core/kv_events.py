"""Changes of a prefix cache as plain values: stored, removed, cleared.

The pure side of KV events: `core` and `kv` append these to a log if requested, and `kv_wire`
encodes them in an engine's format. Replaying a log gives exactly the hashes in the cache: a block
is in the cache from its `Stored` to its `Removed` or to the next `Cleared`. `Stored` may be
repeated for a present block (vLLM 0.25 and later report reuse, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Stored:
    """Consecutive full blocks. `tokens` has `block_size` token IDs for each block."""

    hashes: Sequence[int]
    parent: int | None  # the hash of the block before the first; None: the prompt begins here
    tokens: Sequence[int]
    block_size: int
    salt: str | None = None  # cache salt of the prompt, sent with its first block only


@dataclass(frozen=True, slots=True)
class Removed:
    hash: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """The cache is empty."""


KvEvent: TypeAlias = Stored | Removed | Cleared
