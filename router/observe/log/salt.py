"""Makes salted hashes, which show whether two requests have the same value without revealing it.

The access log contains tenants, sessions and prompt blocks only as salted hashes (xxh3, 64 bits,
cut to 48). Without the salt, a reader of the log cannot test guesses of a prompt or a key. The salt
is random and new at each start, unless the configuration sets it. With a configured salt, the
hashes of several logs can be compared.
"""

from __future__ import annotations

import os
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from xxhash import xxh3_64_digest, xxh3_64_hexdigest, xxh3_64_intdigest

BYTES: Final = 6  # number of bytes that are kept of a hash
EVERY: Final = 2  # only every second block of a prompt is logged, because a hash costs 0.1 us
_LETTERS: Final = 2 * BYTES
_HASH: Final = 8  # number of bytes of a block's hash
# Compiled code calls a `Final` without a search for its name.
_digest: Final[Any] = xxh3_64_digest


class Salter:
    """Makes hashes with one salt. `most`: the maximum number of hashes of a prompt's blocks."""

    def __init__(self, salt: str, most: int) -> None:
        key = salt.encode() if salt else os.urandom(16)
        # An object: compiled code would convert an `int` of 64 bits at each use.
        self._seed: Any = xxh3_64_intdigest(key)
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
        packed: bytes = _packer(len(blocks)).pack(*blocks)
        hashes: list[bytes] = []
        for at in range(0, len(packed), _HASH):
            found: bytes = _digest(packed[at : at + _HASH], seed)
            hashes.append(found[:BYTES])
        return b"".join(hashes)


@lru_cache(maxsize=1024)
def _packer(count: int) -> Struct:
    return Struct(f"<{count}Q")
