"""The blocks that one publisher of KV events holds or held; used by `index`.

Only `ExactIndex` changes these objects. The rules are in the docstring of its module.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from xxhash import xxh3_64_intdigest

from router.addons.kv_events.decode import BlockStored

SHARDS: Final = 64
LOW: Final = SHARDS - 1
ROOTS: Final = 1024  # maximum number of roots per holder, because clients choose cache salts

Shards = list[dict[int, int]]


def new_shards() -> Shards:
    return [{} for _ in range(SHARDS)]


class Holder:
    """The blocks that one publisher holds: a replica, or a data-parallel rank of a replica."""

    __slots__ = (
        *("bit", "block_size", "complete", "count", "duplicates", "ghosts", "gpu", "group"),
        *("is_connected", "key", "media", "rank", "roots", "turn"),
    )

    def __init__(self, key: Hashable, rank: int, bit: int) -> None:
        self.key = key
        self.rank = rank
        self.block_size = 0  # tokens per block; 0: no block was stored yet
        # the number of the engine's KV cache group whose blocks are recorded; None: not known yet
        self.group: int | None = None
        self.complete = False
        self.is_connected = True
        # The roots (`chains.root`) of the prompts that matched blocks of this holder. A match
        # proves that the token IDs of such prompts are the same in the events and in the router.
        self.roots: dict[int, None] = {}
        self.empty(bit)

    def empty(self, bit: int) -> None:
        """Forget all blocks of this holder, and give it another bit in the masks of the index."""
        self.bit = bit
        self.gpu = new_shards()  # blocks on the GPU: the engine's hash -> the router's hash
        # medium other than the GPU -> the engine's hash -> the router's hash
        self.media: dict[str, dict[int, int]] = {}
        # the router's hash -> the number of additional engine hashes of the same block
        self.duplicates: dict[int, int] = {}
        self.ghosts: dict[int, int] = {}
        self.count = 0  # number of entries in `gpu` and `media`
        self.turn = 0  # index of the dict in `gpu` from which the next blocks are evicted

    def matched(self, root: int) -> None:
        """Note that a prompt with this root matched."""
        if root not in self.roots:
            if len(self.roots) >= ROOTS:
                del self.roots[next(iter(self.roots))]
            self.roots[root] = None

    def find(self, engine_hash: int) -> int | None:
        """Return the router's hash of a block that the replica holds, or held recently."""
        found = self.gpu[engine_hash & LOW].get(engine_hash)
        if found is None:
            found = self.ghosts.get(engine_hash)
        if found is None:
            for held in self.media.values():
                found = held.get(engine_hash)
                if found is not None:
                    break
        return found


class Retired:
    """The entries of a cleared holder. They are removed later; `bit` is the holder's former bit."""

    __slots__ = ("bit", "count", "gpu")

    def __init__(self, holder: Holder) -> None:
        self.bit = holder.bit
        self.gpu = [shard for shard in holder.gpu if shard]
        self.count = sum(len(shard) for shard in self.gpu)


class IndexStats:
    """Numbers for metrics: totals since the start."""

    __slots__ = ("duplicates", "evicted", "left_out", "orphans", "removed", "stored")

    def __init__(self) -> None:
        self.stored = 0  # number of blocks added
        self.duplicates = 0  # number of stored blocks that were already in the index
        self.removed = 0  # number of blocks that the engine reported as removed
        self.orphans = 0  # number of blocks that were ignored because their parent is not known
        # number of blocks that were ignored because of their KV cache group, size or medium
        self.left_out = 0
        self.evicted = 0  # number of blocks removed because the index was full


def count_of(holder: Holder) -> int:
    return holder.count


def chain_apart(event: BlockStored, before: int) -> list[int]:
    """Return the hashes of blocks that depend on more than token IDs, such as on an image.

    `before`: the hash of the previous block. No chain of token IDs alone may give the same hashes.
    """
    step = event.block_size * 4
    extras = event.extras or []
    ours = []
    for index in range(len(event.hashes)):
        block = event.tokens[index * step : (index + 1) * step]
        apart = extras[index]
        before = xxh3_64_intdigest(block + b"\0" + apart if apart else block, before)
        ours.append(before)
    return ours
