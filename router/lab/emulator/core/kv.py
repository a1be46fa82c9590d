"""A paged KV pool with a prefix cache, as in vLLM.

A block is `block_size` tokens. Requests can share a full block whose hash is known. Hashes are
chained: the hash of a block represents the whole prompt up to the block's end. Each block has a
reference count. When the last holder releases a block, the block stays cached in the free queue
until it is reused. The block that was freed longest ago is reused first. A request frees its last
block first, so that a cached prefix is evicted from its end.

The free queue is a linked list: each free block stores the numbers of its neighbours. Taking a
cached block out of the queue, freeing a block and reusing a block cost a few writes each. A prompt
needs these operations for each of its blocks.

Invariants: every block is either referenced or free, never both; `used + free == num_blocks`; a
cached hash names exactly one block. A block that was never used costs no memory, so that a thousand
pools fit in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from mypy_extensions import i32, mypyc_attr

from router.lab.emulator.core.kv_events import KvEvent, Removed

# The hash of a block's content, an int. The type is Any, so that compiled code keeps the caller's
# int object. A new int object would cost an allocation and 32 bytes for each hashed block.
Hash = Any
NOBODY: Final = -1  # stored instead of a block number where there is no block


@mypyc_attr(acyclic=True)
class Block:
    """A block of `block_size` tokens. Blocks are compared by identity, not by content."""

    __slots__ = ("after", "before", "name", "number", "refs")

    def __init__(self, number: int) -> None:
        # Each number is stored in four bytes, because a thousand pools have a million blocks.
        self.number: i32 = number  # the block's number in its pool
        self.refs: i32 = 0  # number of holders of the block
        self.name: Hash = None  # the hash of its content; None: unknown
        # The numbers of the neighbours in the free queue, while the block is free. References to
        # the neighbours would form cycles, which the garbage collector would have to traverse.
        self.before: i32 = NOBODY
        self.after: i32 = NOBODY


class KvPool:
    """A pool of KV blocks. The caller keeps the lists of the blocks that it holds."""

    __slots__ = (
        "_blocks",
        "_cached",
        "_first",
        "_last",
        "_log",
        "_queued",
        "block_size",
        "evictions",
        "num_blocks",
        "peak",
        "taken",
    )

    def __init__(self, num_blocks: int, block_size: int, log: list[KvEvent] | None = None) -> None:
        """Create an empty pool. A `Removed` event for each evicted hash is appended to `log`."""
        if num_blocks < 1 or block_size < 1:
            raise ValueError("a KV pool needs at least one block of at least one token")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.evictions = 0  # cached blocks that were evicted for reuse
        self.taken = 0  # number of empty blocks that were allocated
        self.peak = 0  # maximum number of blocks with a holder at the same time
        self._log = log
        self._blocks: list[Block] = []  # by number; blocks with higher numbers were never used
        self._first = NOBODY  # number of the first block of the free queue (next to be reused)
        self._last = NOBODY  # number of the last block of the free queue
        self._queued = 0  # number of blocks in the free queue
        self._cached: dict[Hash, Block] = {}

    @property
    def free(self) -> int:
        """Number of blocks without a holder (cached or not)."""
        return self.num_blocks - len(self._blocks) + self._queued

    @property
    def used(self) -> int:
        return len(self._blocks) - self._queued

    @property
    def cached(self) -> int:
        """Number of blocks with a stored hash, which prompts can share, with or without holders."""
        return len(self._cached)

    def match(self, hashes: Sequence[Hash], limit: int) -> list[Block]:
        """Blocks of the longest cached prefix, at most `limit` of them. Changes nothing."""
        blocks: list[Block] = []
        cached = self._cached
        left = limit
        for value in hashes:
            if left <= 0:
                break
            left -= 1
            block = cached.get(value)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def idle(self, blocks: Iterable[Block]) -> int:
        """Number of `blocks` without a holder: `share(blocks)` reduces `free` by this number."""
        found = 0
        for block in blocks:
            if not block.refs:
                found += 1
        return found

    def sole(self, blocks: Iterable[Block]) -> int:
        """Number of `blocks` with one holder: `release(blocks)` frees this number of blocks."""
        found = 0
        for block in blocks:
            if block.refs == 1:
                found += 1
        return found

    def hashes(self) -> frozenset[int]:
        """The hashes of all cached blocks."""
        return frozenset(self._cached)

    def state(self) -> tuple[list[int], list[Hash], list[int]]:
        """Three lists: each block's number of holders, each block's hash, and the free blocks'
        numbers in order of reuse.
        """
        free: list[int] = []
        number = self._first
        while number != NOBODY:
            free.append(number)
            number = self._blocks[number].after
        return [b.refs for b in self._blocks], [b.name for b in self._blocks], free

    def share(self, blocks: list[Block]) -> None:
        """Add one holder to each of these cached blocks."""
        known = self._blocks
        for block in blocks:
            if not block.refs:
                self._queued -= 1
                before, after = block.before, block.after
                if before == NOBODY:
                    self._first = after
                else:
                    known[before].after = after
                if after == NOBODY:
                    self._last = before
                else:
                    known[after].before = before
            block.refs += 1

    def take(self, count: int) -> list[Block]:
        """Allocate `count` empty blocks. Raises MemoryError when fewer are free."""
        if count > self.free:
            raise MemoryError("every KV block is in use")
        known, cached = self._blocks, self._cached
        blocks: list[Block] = []
        first = len(known)
        for number in range(first, min(first + count, self.num_blocks)):
            block = Block(number)
            block.refs = 1
            known.append(block)
            blocks.append(block)
        number = self._first
        for _ in range(count - len(blocks)):
            block = known[number]
            number = block.after
            self._queued -= 1
            block.refs = 1
            old = block.name
            if old is not None:
                block.name = None
                del cached[old]
                self.evictions += 1
                if self._log is not None:
                    self._log.append(Removed(old))
            blocks.append(block)
        self._first = number
        if number == NOBODY:
            self._last = NOBODY
        else:
            known[number].before = NOBODY
        self.taken += count
        if self.used > self.peak:
            self.peak = self.used
        return blocks

    def commit(self, blocks: list[Block], values: Sequence[Hash]) -> None:
        """Store the hashes of full blocks, so that later prompts can share these blocks.

        A second copy of a cached block gets no hash, and a block that has a hash keeps it.
        """
        if len(blocks) != len(values):
            raise ValueError("each block has one hash")
        cached = self._cached
        for index, block in enumerate(blocks):
            value = values[index]
            if block.name is None and cached.setdefault(value, block) is block:
                block.name = value

    def release(self, blocks: list[Block]) -> None:
        """Remove one holder from each of these blocks. A block without a holder becomes free."""
        known = self._blocks
        for block in reversed(blocks):
            refs = block.refs - 1
            block.refs = refs
            if not refs:
                self._queued += 1
                last = self._last
                block.before = last
                block.after = NOBODY
                if last == NOBODY:
                    self._first = block.number
                else:
                    known[last].after = block.number
                self._last = block.number

    def clear_cache(self) -> None:
        """Forget the hashes of all blocks. The holders of the blocks do not change."""
        self._cached.clear()
        for block in self._blocks:
            block.name = None
