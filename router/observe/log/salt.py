"""Makes salted hashes, which show whether two requests have the same value without revealing it.

The access log contains tenants, sessions and prompt blocks only as salted hashes (xxh3, 64 bits,
cut to 48). Without the salt, a reader of the log cannot test guesses of a prompt or a key. The salt
is random and new at each start, unless the configuration sets it. With a configured salt, the
hashes of several logs can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

from xxhash import xxh3_64_digest, xxh3_64_hexdigest, xxh3_64_intdigest

BYTES = 6  # number of bytes that are kept of a hash
EVERY = 2  # only every second block of a prompt is logged, because a hash costs 0.1 us
_LETTERS = 2 * BYTES
_eight_at_a_time = Struct("8s").iter_unpack


class Salter:
    """Makes hashes with one salt. `most`: the maximum number of hashes of a prompt's blocks."""

    def __init__(self, salt: str, most: int) -> None:
        key = salt.encode() if salt else os.urandom(16)
        self._seed = xxh3_64_intdigest(key)
        self._last = most * EVERY

    def name(self, value: bytes) -> str:
        """Return the hash of `value` as twelve hexadecimal digits."""
        return xxh3_64_hexdigest(value, self._seed)[:_LETTERS]

    def blocks(self, blocks: tuple[int, ...]) -> bytes:
        """Return six bytes for every second block of a prompt.

        The bytes are equal for two prompts that are equal up to the end of the block.
        """
        blocks = blocks[EVERY - 1 : self._last : EVERY]
        if not blocks:
            return b""
        seed = self._seed
        packed: Iterator[tuple[bytes]] = _eight_at_a_time(_packer(len(blocks)).pack(*blocks))
        return b"".join([xxh3_64_digest(block, seed)[:BYTES] for (block,) in packed])


@lru_cache(maxsize=1024)
def _packer(count: int) -> Struct:
    return Struct(f"<{count}Q")
