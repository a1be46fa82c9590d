"""Computes the router's own IDs of KV cache blocks: hashes over token IDs.

Engines hash blocks in ways that change with version, settings and a random seed, so the engines'
hashes are never computed here. Events contain the token IDs, and requests are converted into token
IDs. The token IDs of events and of requests are hashed in the same way. The hash of a block depends
on the hash of the block before it: h(i) = xxh3_64(token IDs of block i as 4-byte little-endian,
seed = h(i-1)). h(-1) is a hash of everything else that separates caches: the adapter and the cache
salt.

Must never: do I/O, or depend on a replica.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Final

from xxhash import xxh3_64_intdigest

_BYTES = 4  # bytes of one token ID
# Default maximum number of leading tokens of a prompt that are compared: as many as the estimate
# compares with the default settings (`prefix.blocks`, `prefix.block_bytes`).
TOKENS_MOST: Final = 65_536
# Maximum number of hashes per prompt and block size. It limits the time of a comparison to about
# 2 ms if blocks have less than 4 tokens. SGLang has blocks of one token by default.
HASHES_MOST: Final = 16_384


def pack(ids: Iterable[int]) -> bytes:
    """Return token IDs as 4-byte little-endian.

    Raises TypeError or OverflowError for an invalid ID.
    """
    packed = array("I", ids)
    if sys.byteorder != "little":
        packed.byteswap()
    return packed.tobytes()


def root(lora: str = "", salt: str = "") -> int:
    """Return the seed for the hash of the first block.

    `lora`: the adapter's name; "": none. `salt`: the cache salt; "": none.
    """
    if not lora and not salt:
        return 0
    name = lora.encode("utf-8", "surrogatepass")
    return xxh3_64_intdigest(b"%d:%b%b" % (len(name), name, salt.encode("utf-8", "surrogatepass")))


def chain(tokens: bytes, block_size: int, before: int, most: int = sys.maxsize) -> list[int]:
    """Return the hashes of the whole blocks of packed `tokens`.

    `most`: the maximum number of hashes. `before`: the hash of the block before the first one.
    """
    step = block_size * _BYTES
    end = min(len(tokens) // step, most) * step
    hashes = []
    for at in range(0, end, step):
        before = xxh3_64_intdigest(tokens[at : at + step], before)
        hashes.append(before)
    return hashes


class TokenChains:
    """The token IDs of one prompt, and the hashes of its blocks for any block size."""

    __slots__ = ("_chains", "_most", "_tokens", "count", "root")

    def __init__(
        self, tokens: bytes, lora: str = "", salt: str = "", most: int = TOKENS_MOST
    ) -> None:
        """`tokens`: the packed token IDs; `most`: maximum number of leading tokens to compare."""
        self._tokens = tokens
        self._most = most
        self._chains: dict[int, list[int]] = {}
        self.root = root(lora, salt)
        self.count = len(tokens) // _BYTES

    def of(self, block_size: int) -> list[int]:
        """Return the hashes of the leading blocks that are compared with a prefix cache."""
        found = self._chains.get(block_size)
        if found is None:
            most = min(self._most // block_size, HASHES_MOST, self._whole(block_size))
            found = self._chains[block_size] = chain(self._tokens, block_size, self.root, most)
        return found

    def is_cut(self, block_size: int) -> bool:
        """Return whether the prompt has more blocks than are compared."""
        return len(self.of(block_size)) < self._whole(block_size)

    def _whole(self, block_size: int) -> int:
        """Return the number of blocks that can be found in a prefix cache.

        Engines always compute the last token, so n tokens have (n-1) // block_size blocks that can
        be a cache hit (vLLM, SGLang).
        """
        return max(0, self.count - 1) // block_size
