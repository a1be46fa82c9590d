"""The events that describe changes of a prefix cache: stored, removed, cleared.

If requested, `scheduler`, `kv` and `engine_core` append these events to a log; `kv_wire` encodes
them in an engine's format. The log determines exactly which hashes are in the cache: a block is in
the cache from its `Stored` to its `Removed` or to the next `Cleared`. `Stored` may be repeated for
a block that is in the cache, because vLLM 0.25 and later also report reuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Stored:
    """Consecutive full blocks were stored. `tokens` has `block_size` token IDs for each block."""

    hashes: Sequence[int]
    parent: int | None  # hash of the block before the first block; None: the prompt begins here
    tokens: Sequence[int]
    block_size: int
    salt: str | None = None  # cache salt of the prompt, sent with its first block only


@dataclass(frozen=True, slots=True)
class Removed:
    hash: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """All blocks were removed from the cache."""


KvEvent: TypeAlias = Stored | Removed | Cleared
