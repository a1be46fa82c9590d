"""What changes in a prefix cache, as plain values: stored, removed, cleared.

The pure side of KV events: `core` and `kv` append these to a log when they were asked to, and
`kv_wire` turns them into an engine's bytes. Replaying a log gives exactly the hashes the cache
holds: a block is there from its `Stored` to its `Removed` or to the next `Cleared`. `Stored` may
come again for what is there already (vLLM 0.25 and later tell reuse, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Stored:
    """Consecutive full blocks. `tokens` has `block_size` token ids for each."""

    hashes: Sequence[int]
    parent: int | None  # the hash of the block before the first; None: these begin a prompt
    tokens: Sequence[int]
    block_size: int
    salt: str | None = None  # of the prompt, with its first block only


@dataclass(frozen=True, slots=True)
class Removed:
    hash: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is cached any more."""


KvEvent: TypeAlias = Stored | Removed | Cleared
