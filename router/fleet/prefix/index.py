"""Estimates which replica holds which prompt prefix, from the requests that the router sent to each
replica.

There is one index for the fleet: block hash -> bitmask of the replicas that hold the block. So one
walk along a prompt's chain of hashes finds every replica that holds a prefix of the prompt, and the
number of its leading blocks. Hashes are chained: the hash of a block covers all blocks before it. A
replica may have evicted blocks in the middle, so the walk goes forward and stops when no replica is
left.

The states of a block at a replica:

1. `insert`, at dispatch: the block counts as held at once, so that a burst of similar requests goes
   to one replica. The entry is tentative.
2. `confirm`, at the first token: the engine has prefilled the block. A repeated block counts as
   used.
3. `withdraw`, if the attempt ended before its first token: blocks that are still tentative are
   dropped.
4. Eviction, when the replica holds as many blocks as its capacity in the index. The engine evicts
   the least recently used blocks; the index approximates this with the CLOCK algorithm: a ring in
   order of arrival, and one bit "used since the hand (the ring's eviction pointer) passed". The
   last block of a prompt enters the ring first, so the end of a prompt is evicted before its
   beginning.
5. `clear` when the engine restarts, `remove_replicas` when the replica is removed. Both take effect
   at once for every later lookup. The memory is freed in pieces (`tend`), so that no call takes
   long.

The index has no second dict in LRU order, because it needs too much memory: a dict whose entries
are often added and removed allocates three to six times as many slots as it has entries. Two dicts
cost up to 275 bytes for each pair of a block and a replica; a ring costs 8 bytes. The masks are in
64 dicts, because growing one dict of a million entries blocks the event loop for tens of
milliseconds, and needs twice the memory meanwhile.

Must never: do I/O, read a clock, raise because of an unknown replica, or exceed the capacity of a
replica or `entries` in total.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from itertools import compress
from sys import maxsize
from typing import Final, Generic, NamedTuple

from router.fleet.prefix.index_slot import Block, K, Mask, Slot

_HASH_BITS: Final = 61
# Number of dicts over which the blocks are spread. The highest bits of a block's hash select its
# dict, because a dict itself uses the lowest bits.
SHARDS: Final = 64
FEW: Final = 8  # A set of replicas that hold a block is cached if it has more members than this.
ONE_BY_ONE: Final = 2  # If a mask has at most this many bits, they are looked up one by one.
REMEMBERED: Final = 32  # Maximum number of cached sets of replicas.
AT_ONCE: Final = 2048  # Maximum entries that one call removes, which takes about a millisecond.
# Maximum number of entries that are kept free for each replica. At most a sixteenth of a replica's
# capacity is kept free.
RESERVE: Final = 4096
_ZERO_ONE: Final = bytes.maketrans(b"01", b"\x00\x01")


class Stats(NamedTuple):
    """`entries` and `blocks` are present numbers; the other fields are totals since the start."""

    entries: int  # number of (block, replica) pairs in the index now
    blocks: int  # number of distinct blocks in these pairs
    evictions: int  # number of pairs that were evicted because a replica's capacity was used up
    lookups: int  # number of lookups of prompts with at least one block
    hits: int  # number of lookups whose first block was held by a replica


class PrefixIndex(Generic[K]):
    """Estimates the prefix blocks that each replica holds. A replica's key may be any hashable
    object.

    `entries`: maximum total of (block, replica) pairs, divided evenly among the replicas.
    """

    def __init__(self, entries: int, shards: int = SHARDS) -> None:
        """`shards`: the number of dicts, a power of two. 1 is the fastest if no request waits while
        the dict grows, because entries that are added together are adjacent in memory.
        """
        self._most = entries
        self._shift = _HASH_BITS + 1 - shards.bit_length()
        self._shards: list[dict[Block, Mask]] = [{} for _ in range(shards)]
        self._slots: dict[K, Slot[K]] = {}
        # slot number -> the key of the replica to which the slot belongs
        self._keys: list[K | None] = []
        self._by_held: dict[Mask, K] = {}  # the `held` bit of a replica -> the replica's key
        self._free: list[int] = []  # numbers of slots that can be used again, the lowest first
        self._live = 0  # mask with the `held` bits of all replicas that are in the fleet
        # mask with the bits of a single replica -> the mask object that all its blocks share
        self._shared: dict[Mask, Mask] = {}
        # cached parts of results: (mask, depth) -> each replica of the mask with `depth`
        self._remembered: dict[tuple[Mask, int], dict[K, int]] = {}
        # slots of which entries must be removed: those of removed replicas, and those that have
        # more entries than their capacity
        self._work: dict[Slot[K], None] = {}
        self._entries = self._evictions = self._lookups = self._hits = 0

    # -- replicas -----------------------------------------------------------------------------

    def add_replicas(self, keys: Iterable[K]) -> None:
        """Add several replicas at once, because dividing the entries costs O(replicas)."""
        for key in keys:
            if key not in self._slots:
                self._open(key, maxsize)
        self._share_out()

    def remove_replicas(self, keys: Iterable[K]) -> None:
        """Remove several replicas at once, because dividing the entries costs O(replicas)."""
        for key in keys:
            slot = self._slots.pop(key, None)
            if slot is not None:
                self._close(slot)
        self._share_out()

    def clear(self, key: K) -> None:
        """Drop all blocks of a replica, because the engine restarted or dropped its cache."""
        slot = self._slots.get(key)
        if slot is None or not len(slot.ring):
            return
        capacity = slot.capacity
        # The replica gets a new slot with other bits, so that its old bits can be removed from the
        # masks later.
        self._open(key, slot.own).capacity = capacity
        self._close(slot)
        self.tend(AT_ONCE)

    def set_capacity(self, key: K, blocks: int) -> None:
        slot = self._slots.get(key)
        if slot is not None:
            slot.own = max(blocks, 0)
            self._limit(slot)
            self.tend(AT_ONCE)

    def holding(self, key: K) -> int:
        """Return the number of blocks that a replica holds."""
        slot = self._slots.get(key)
        return 0 if slot is None else slot.count

    def capacity(self, key: K) -> int:
        """Return the maximum number of blocks that the index keeps for a replica."""
        slot = self._slots.get(key)
        return 0 if slot is None else slot.capacity

    def _open(self, key: K, own: int) -> Slot[K]:
        number = heappop(self._free) if self._free else len(self._keys)
        if number == len(self._keys):
            self._keys.append(None)
        self._remembered.clear()
        slot = Slot(key, number, max(own, 0))
        self._slots[key] = slot
        self._keys[number] = key
        self._by_held[slot.held] = key
        self._live |= slot.held
        self._shared[slot.held] = slot.held
        self._shared[slot.both] = slot.both
        return slot

    def _close(self, slot: Slot[K]) -> None:
        self._remembered.clear()
        slot.key = None
        slot.capacity = 0
        self._keys[slot.number] = None
        del self._by_held[slot.held]
        self._live ^= slot.held
        self._work[slot] = None

    def _share_out(self) -> None:
        """Set the capacities of all replicas after replicas were added or removed."""
        for slot in self._slots.values():
            self._limit(slot)
        self.tend(AT_ONCE)

    def _limit(self, slot: Slot[K]) -> None:
        slot.capacity = min(slot.own, self._most // len(self._slots))
        slot.last = None
        if slot.excess > 0:
            self._work[slot] = None
        else:
            self._work.pop(slot, None)

    # -- requests -----------------------------------------------------------------------------

    def match(self, blocks: tuple[Block, ...]) -> Mapping[K, int]:
        """Return how many leading blocks of a prompt each replica holds. Replicas that hold none
        are absent.

        The result may be shared with other callers, so it must not be changed.
        """
        found: dict[K, int] = {}
        left: Mask = self._live
        if not blocks or not left:
            return found
        self._lookups += 1
        shards, shift = self._shards, self._shift
        depth = 0
        # The mask of the previous block. Blocks of one conversation mostly share one mask object.
        last: object = None
        for block in blocks:
            mask = shards[hash(block) >> shift].get(block)
            if mask is None:
                break
            if mask is not last:
                last = mask
                stay = left & mask
                if stay != left:
                    if depth:
                        found = self._note(found, left ^ stay, depth)
                    left = stay
                    if not stay:
                        break
            depth += 1
        if not depth:
            return found
        self._hits += 1
        return self._note(found, left, depth) if left else found

    def _note(self, found: dict[K, int], mask: Mask, depth: int) -> dict[K, int]:
        """Add to `found` each replica whose `held` bit is in `mask`, with `depth` blocks."""
        key = self._by_held.get(mask)
        if key is not None:
            if len(found) > FEW:  # `found` may be a cached dict, which must not be changed
                found = found.copy()
            found[key] = depth
            return found
        # Large sets of replicas are cached, because a system prompt that all replicas hold is
        # looked up for every request.
        many = self._remembered.get((mask, depth))
        if many is None:
            if mask.bit_count() <= ONE_BY_ONE:
                many = {}
                while mask:
                    lowest = mask & -mask
                    many[self._by_held[lowest]] = depth
                    mask ^= lowest
                return found | many if found else many
            # The mask is converted to text, the lowest bit first, without the `used` bits. Then
            # `compress` selects the replicas. All of these steps run in C.
            bits = bin(mask)[:1:-2].encode().translate(_ZERO_ONE)
            many = dict.fromkeys(compress(self._keys, bits), depth)  # type: ignore[arg-type]
            if len(many) > FEW:
                if len(self._remembered) >= REMEMBERED:
                    del self._remembered[next(iter(self._remembered))]
                self._remembered[mask, depth] = many
        return found | many if found else many

    def is_reused(self, key: K, block: Block) -> bool:
        """Return whether a replica holds a block that was matched since the CLOCK hand passed it.

        A request whose own match is not confirmed yet is not counted.
        """
        slot = self._slots.get(key)
        if slot is None:
            return False
        both = slot.both
        mask = self._shards[hash(block) >> self._shift].get(block, 0)
        return bool(mask & both == both)

    def insert(self, key: K, blocks: tuple[Block, ...], held: int = 0) -> None:
        """Record that a prompt was sent to a replica. `held`: the result of `match` for it."""
        slot = self._slots.get(key)
        if slot is None:
            return
        new = self._joined(slot, blocks[held : slot.capacity])
        slot.last = blocks
        slot.last_held = held
        if new:
            self._arrived(slot, new)

    def _joined(self, slot: Slot[K], blocks: tuple[Block, ...]) -> list[Block]:
        """Let a replica hold these blocks. Returns the new ones, the last block first."""
        bit = slot.held
        shards, shift = self._shards, self._shift
        new: list[Block] = []
        # The mask of the previous block. The blocks of one prompt mostly share one mask object.
        last: Mask = None
        joined: Mask = None  # `last` with this replica's bit; None: `last` already has the bit.
        for block in reversed(blocks):
            masks = shards[hash(block) >> shift]
            mask = masks.get(block)
            if mask is None:
                masks[block] = bit
            elif mask is bit:
                continue
            else:
                if mask is not last:
                    last = mask
                    joined = None if mask & bit else mask | bit
                if joined is None:
                    continue
                masks[block] = joined
            new.append(block)
        return new

    def confirm(self, key: K, blocks: tuple[Block, ...], held: int | None = None) -> None:
        """Record that the first token came from a replica, so the replica holds these blocks.

        `held`: as for `insert`; this number of leading blocks counts as used. The blocks after them
        count as new, so that a prompt that is sent only once does not stay longer than a repeated
        one. None: the number is unknown, so all blocks count as used.
        """
        slot = self._slots.get(key)
        if slot is None:
            return
        used = len(blocks) if held is None else held
        # The blocks were inserted at the dispatch. Since then they may have been evicted, or
        # withdrawn by another request.
        until = used if slot.last is blocks and slot.last_held == held else slot.capacity
        new = self._joined(slot, blocks[used:until])
        bit, both = slot.held, slot.both
        shards, shift = self._shards, self._shift
        last: Mask = None  # The mask of the previous block, as in `_joined`.
        joined: Mask = None
        is_new = False
        for block in reversed(blocks[: min(used, slot.capacity)]):
            masks = shards[hash(block) >> shift]
            mask = masks.get(block)
            if mask is both:
                continue
            if mask is bit:
                masks[block] = both
            elif mask is None:
                masks[block] = both
                new.append(block)
            else:
                if mask is not last:
                    last = mask
                    mine = mask & both
                    joined = None if mine == both else mask | both
                    is_new = not mine
                if joined is not None:
                    masks[block] = joined
                    if is_new:
                        new.append(block)
        if new:
            self._arrived(slot, new)
        # Entries for later insertions are freed here, so that a request that waits for the choice
        # of its replica does not wait for the eviction.
        capacity = slot.capacity
        excess = slot.excess + min(capacity >> 4, RESERVE)
        if excess > 0:
            self._evict(slot, min(excess, 2 * len(blocks) + 64))

    def withdraw(self, key: K, blocks: tuple[Block, ...], held: int = 0) -> None:
        """Drop the tentative blocks of an attempt that ended before its first token. `held`: as for
        `insert`.

        Blocks that another request has used in the meantime are kept. A block that another request
        waits for is added again by the `confirm` of that request.
        """
        slot = self._slots.get(key)
        if slot is None:
            return
        slot.last = None
        bit, both = slot.held, slot.both
        shards, shift = self._shards, self._shift
        for block in blocks[held : slot.capacity]:
            masks = shards[hash(block) >> shift]
            mask = masks.get(block, 0)
            if mask & both == bit:
                self._drop(slot, masks, block, mask)
        # Blocks that were inserted recently are at the end of the ring, so those that are no longer
        # held are removed there.
        ring = slot.ring
        while len(ring) > slot.head:
            block = ring[-1]
            if shards[hash(block) >> shift].get(block, 0) & bit:
                break
            ring.pop()

    # -- room ---------------------------------------------------------------------------------

    def _arrived(self, slot: Slot[K], new: list[Block]) -> None:
        slot.ring.fromlist(new)
        slot.count += len(new)
        self._entries += len(new)
        # About twice as many entries may be evicted as were added. So a replica that has more
        # blocks than its capacity in the index gets down to its capacity.
        most = 2 * len(new) + 64
        excess = slot.excess
        if excess > 0:
            self._evict(slot, min(excess, most))
        if self._work:
            self.tend(most)

    def tend(self, most: int = AT_ONCE) -> bool:
        """Free up to `most` entries of removed replicas and of replicas above their capacity.

        Returns True if there are more such entries. Requests free enough entries to keep the index
        below its limits. Call this method regularly, so that the memory of removed replicas is
        freed even without requests.
        """
        while self._work and most > 0:
            slot = next(iter(self._work))
            before = len(slot.ring) - slot.head
            if slot.key is None:
                self._sweep(slot, most)
            else:
                self._evict(slot, min(slot.excess, most))
            most -= before - (len(slot.ring) - slot.head)
            if slot.excess <= 0:
                del self._work[slot]
                if slot.key is None:
                    del self._shared[slot.held], self._shared[slot.both]
                    heappush(self._free, slot.number)
        if not self._slots and not self._work:
            self._keys.clear()
            self._free.clear()
            # new dicts, because an emptied dict keeps its allocated memory
            self._shards = [{} for _ in self._shards]
        return bool(self._work)

    def _sweep(self, slot: Slot[K], most: int) -> None:
        """Drop up to `most` entries of a replica that was removed; `slot` is its former slot."""
        ring, bit, shards, shift = slot.ring, slot.held, self._shards, self._shift
        for _ in range(min(most, len(ring) - slot.head)):
            block = ring.pop()
            masks = shards[hash(block) >> shift]
            mask = masks.get(block, 0)
            if mask & bit:
                self._drop(slot, masks, block, mask)
        if len(ring) == slot.head:
            slot.ring = array("Q")
            slot.head = 0

    def _evict(self, slot: Slot[K], excess: int) -> None:
        """Evict `excess` entries from a replica's ring.

        The hand of the CLOCK algorithm skips blocks that were used since it last passed, but the
        number of skips is limited to four per evicted block (plus 64). After that, every block that
        the hand reaches is evicted.
        """
        slot.last = None
        chances = 4 * excess + 64
        ring, bit, both = slot.ring, slot.held, slot.both
        shards, shift = self._shards, self._shift
        dropped = 0
        last: Mask = None  # The mask of the previous block, as in `_joined`.
        is_held = is_used = False
        unused: Mask = None
        without: Mask = None
        while excess > 0:
            at = slot.head
            batch: Iterable[Block] = ring[at : at + excess]
            slot.head = at + excess
            for block in batch:
                masks = shards[hash(block) >> shift]
                mask = masks.get(block, 0)
                # only this replica holds the block: the usual case if prompts do not repeat
                if mask is bit:
                    del masks[block]
                    dropped += 1
                    excess -= 1
                    continue
                if mask is not last:
                    last = mask
                    mine = mask & both
                    is_held = bool(mine)
                    is_used = mine == both
                    unused = without = None
                if is_used and chances > 0:
                    chances -= 1
                    if unused is None:
                        unused = bit if mask is both else mask ^ both ^ bit
                    masks[block] = unused
                    ring.append(block)
                    continue
                if is_held:
                    if without is None:
                        mask &= ~both
                        without = self._shared.get(mask, mask)
                    if without:
                        masks[block] = without
                    else:
                        del masks[block]
                    dropped += 1
                excess -= 1
        slot.count -= dropped
        self._entries -= dropped
        self._evictions += dropped
        if slot.head * 4 >= len(ring):
            del ring[: slot.head]
            slot.head = 0

    def _drop(self, slot: Slot[K], masks: dict[Block, Mask], block: Block, mask: Mask) -> None:
        """Record that the replica of `slot` does not hold `block` any more."""
        mask &= ~slot.both
        if mask:
            masks[block] = self._shared.get(mask, mask)
        else:
            del masks[block]
        slot.count -= 1
        self._entries -= 1

    @property
    def stats(self) -> Stats:
        return Stats(
            self._entries,
            sum(map(len, self._shards)),
            self._evictions,
            self._lookups,
            self._hits,
        )
