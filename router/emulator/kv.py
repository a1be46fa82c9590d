"""A paged KV pool with a prefix cache, as vLLM keeps it.

A block is `block_size` tokens. A full block whose content is known by its hash (chained, so that
one hash stands for the whole prefix up to there) can be shared: it is counted by reference, and
when the last holder leaves it stays as cache in the free queue until its room is needed. Free
blocks are reused least recently freed first; a sequence frees its tail before its head, so that
prefixes wither from the end.

Invariants: every block is either referenced or free, never both; `used + free == num_blocks`;
a cached hash names exactly one block. Blocks never touched yet cost no memory, so that a thousand
pools fit in one process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from router.emulator.kv_events import KvEvent, Removed


class KvPool:
    """Blocks are small ints; the caller keeps the lists of those it holds."""

    __slots__ = (
        "_cached",
        "_free",
        "_hashes",
        "_log",
        "_refs",
        "block_size",
        "evictions",
        "num_blocks",
        "peak",
        "taken",
    )

    def __init__(self, num_blocks: int, block_size: int, log: list[KvEvent] | None = None) -> None:
        """With a `log`, every hash that is given up is appended to it."""
        if num_blocks < 1 or block_size < 1:
            raise ValueError("a KV pool needs at least one block of at least one token")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.evictions = 0  # cached blocks given up for their room
        self.taken = 0  # blocks that were given out empty
        self.peak = 0  # most blocks held at once
        self._log = log
        self._refs: list[int] = []  # by block; blocks from len(_refs) on were never used
        self._hashes: list[int | None] = []
        self._free: OrderedDict[int, None] = OrderedDict()  # first: next to be reused
        self._cached: dict[int, int] = {}  # hash -> block

    @property
    def free(self) -> int:
        """Blocks nobody holds (cached or not)."""
        return self.num_blocks - len(self._refs) + len(self._free)

    @property
    def used(self) -> int:
        return len(self._refs) - len(self._free)

    @property
    def cached(self) -> int:
        """Blocks that a prompt could hit, held or not."""
        return len(self._cached)

    def match(self, hashes: Sequence[int], limit: int) -> list[int]:
        """Blocks of the longest cached prefix, at most `limit` of them. Changes nothing."""
        blocks: list[int] = []
        cached = self._cached
        for value in islice(hashes, limit):
            block = cached.get(value)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of these nobody holds: sharing them takes that many from `free`."""
        refs = self._refs
        return sum(1 for block in blocks if not refs[block])

    def sole(self, blocks: Iterable[int]) -> int:
        """How many of these have one holder: their leaving frees that many."""
        refs = self._refs
        return sum(1 for block in blocks if refs[block] == 1)

    def hashes(self) -> frozenset[int]:
        """Everything a prompt could hit."""
        return frozenset(self._cached)

    def share(self, blocks: Iterable[int]) -> None:
        """Hold these cached blocks too."""
        refs = self._refs
        free = self._free
        for block in blocks:
            if not refs[block]:
                del free[block]
            refs[block] += 1

    def take(self, count: int) -> list[int]:
        """Hold so many blocks with nothing in them. Raises MemoryError when fewer are free."""
        refs, names, free, cached = self._refs, self._hashes, self._free, self._cached
        fresh = min(count, self.num_blocks - len(refs))
        blocks = list(islice(free, count - fresh))
        if fresh + len(blocks) < count:
            raise MemoryError("every KV block is in use")
        for block in blocks:
            del free[block]
            refs[block] = 1
            old = names[block]
            if old is not None:
                names[block] = None
                del cached[old]
                self.evictions += 1
                if self._log is not None:
                    self._log.append(Removed(old))
        if fresh:
            blocks = [*range(len(refs), len(refs) + fresh), *blocks]
            refs += [1] * fresh
            names += [None] * fresh
        self.taken += count
        used = len(refs) - len(free)
        if used > self.peak:
            self.peak = used
        return blocks

    def commit(self, blocks: Iterable[int], values: Iterable[int]) -> None:
        """These blocks are full and have these hashes: prompts may hit them from now on.

        A second copy of what is cached already stays anonymous, and an already named block keeps
        its name.
        """
        names, cached = self._hashes, self._cached
        for block, value in zip(blocks, values, strict=True):
            if names[block] is None and value not in cached:
                names[block] = value
                cached[value] = block

    def release(self, blocks: list[int]) -> None:
        """Hold these no longer."""
        refs = self._refs
        free = self._free
        for block in reversed(blocks):
            refs[block] -= 1
            if not refs[block]:
                free[block] = None

    def clear_cache(self) -> None:
        """Forget every hash; what is held stays held."""
        self._cached.clear()
        self._hashes = [None] * len(self._hashes)
