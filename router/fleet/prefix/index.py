"""Estimates which replica holds which prompt prefix, from the requests that the router sent to each
replica.

There is one index for the fleet: block hash -> bitmask of the replicas that hold the block. So one
walk along a prompt's chain of hashes finds every holder and the number of its leading blocks.
Hashes are chained: the hash of a block covers all blocks before it. A replica may have evicted
blocks in the middle, so the walk goes forward and stops when no replica is left.

The states of a block at a replica:

1. `insert`, at dispatch: the block counts as held at once, so that a burst of similar requests goes
   to one replica. The entry is tentative.
2. `confirm`, at the first token: the engine has prefilled the block. A repeated block counts as
   used.
3. `withdraw`, if the attempt ended before its first token: blocks that are still tentative are
   dropped.
4. Eviction, when the replica's share is full. The engine evicts the least recently used blocks; the
   index approximates this with the CLOCK algorithm: a ring in order of arrival, and one bit "used
   since the hand (the ring's eviction pointer) passed". The last block of a prompt enters the ring
   first, so the end of a prompt is evicted before its beginning.
5. `clear` when the engine restarts, `remove_replica` when the replica is removed. Both take effect
   at once for every later lookup. The memory is freed in pieces (`tend`), so that no call takes
   long.

Why there is no second dict in LRU order: a dict whose entries are often added and removed allocates
three to six times as many slots as it has entries. Two dicts cost up to 275 bytes per (block,
holder); a ring costs 8. Why the masks are in 64 dicts: growing one dict of a million entries blocks
the event loop for tens of milliseconds, and needs twice the memory meanwhile.

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
# A block's dict is selected by the highest bits of its hash, because dicts use the lowest ones.
SHARDS: Final = 64
FEW: Final = 8  # number of replicas; larger sets of holders are cached
ONE_BY_ONE: Final = 2  # the bits of up to this number of holders are looked up one by one
REMEMBERED: Final = 32  # number of cached sets of holders
AT_ONCE: Final = 2048  # entries removed per call, which takes about a millisecond
# maximum number of entries kept free per replica; never more than a sixteenth of its capacity
RESERVE: Final = 4096
_ZERO_ONE: Final = bytes.maketrans(b"01", b"\x00\x01")


class Stats(NamedTuple):
    """Totals since the start, except the first two."""

    entries: int  # number of (block, replica) pairs in the index now
    blocks: int  # number of distinct blocks in these pairs
    evictions: int  # Pairs dropped because the capacity was used up.
    lookups: int  # Lookups of prompts with at least one block.
    hits: int  # Lookups whose first block was held by a replica.


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
        self._keys: list[K | None] = []  # the replica's key for each slot number
        self._by_held: dict[Mask, K] = {}  # held bit -> the replica's key
        self._free: list[int] = []  # slot numbers for reuse, the lowest first
        self._live = 0  # the held bits of all replicas that are in the fleet
        self._shared: dict[Mask, Mask] = {}  # one object for each mask of one holder
        # cached sets of holders: (mask, depth) -> replicas with their number of blocks
        self._remembered: dict[tuple[Mask, int], dict[K, int]] = {}
        # slots of removed replicas to clean, and slots to bring below their capacity
        self._work: dict[Slot[K], None] = {}
        self._entries = self._evictions = self._lookups = self._hits = 0

    # -- replicas -----------------------------------------------------------------------------

    def add_replica(self, key: K, blocks: int | None = None) -> None:
        """Add a replica.

        `blocks`: capacity of its KV cache; `None`: unknown; the replica then gets its share of all
        entries.
        """
        if key in self._slots:
            return
        self._open(key, maxsize if blocks is None else blocks)
        self._share_out()

    def add_replicas(self, keys: Iterable[K]) -> None:
        """Add several replicas at once, because dividing the entries costs O(replicas)."""
        for key in keys:
            if key not in self._slots:
                self._open(key, maxsize)
        self._share_out()

    def remove_replica(self, key: K) -> None:
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
        # The replica gets a new slot, so that the bits of the old slot can be removed later.
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
        """Number of blocks that a replica holds."""
        slot = self._slots.get(key)
        return 0 if slot is None else slot.count

    def capacity(self, key: K) -> int:
        """Maximum number of blocks of a replica."""
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
        """Set the capacities after replicas were added or removed."""
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
        """Return how many leading blocks of a prompt each replica holds; a replica without any is
        absent.

        The result may be shared with other callers, so it must not be changed.
        """
        found: dict[K, int] = {}
        left: Mask = self._live
        if not blocks or not left:
            return found
        self._lookups += 1
        shards, shift = self._shards, self._shift
        depth = 0
        last: object = None  # the previous mask; in a conversation it is mostly the same object
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
        """Add the replicas of a mask of held bits to `found`, with `depth` blocks."""
        key = self._by_held.get(mask)
        if key is not None:
            if len(found) > FEW:  # `found` may be a cached dict, which must not be changed
                found = found.copy()
            found[key] = depth
            return found
        # A system prompt that every replica holds is looked up for every request.
        many = self._remembered.get((mask, depth))
        if many is None:
            if mask.bit_count() <= ONE_BY_ONE:
                many = {}
                while mask:
                    lowest = mask & -mask
                    many[self._by_held[lowest]] = depth
                    mask ^= lowest
                return found | many if found else many
            # This runs entirely in C: the bits as text, the lowest first, without the `used` bits.
            bits = bin(mask)[:1:-2].encode().translate(_ZERO_ONE)
            many = dict.fromkeys(compress(self._keys, bits), depth)  # type: ignore[arg-type]
            if len(many) > FEW:
                if len(self._remembered) >= REMEMBERED:
                    del self._remembered[next(iter(self._remembered))]
                self._remembered[mask, depth] = many
        return found | many if found else many

    def insert(self, key: K, blocks: tuple[Block, ...], held: int = 0) -> None:
        """Record a dispatch to a replica. `held`: the result of `match` for this replica."""
        slot = self._slots.get(key)
        if slot is None:
            return
        bit = slot.held
        shards, shift = self._shards, self._shift
        new: list[Block] = []
        last: Mask = None  # the previous mask; along a prompt it is mostly the same object
        joined: Mask = None  # `last` with this replica's bit; None: `last` already has the bit
        for block in reversed(blocks[held : slot.capacity]):
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
        slot.last = blocks
        slot.last_held = held
        if new:
            self._arrived(slot, new)

    def confirm(self, key: K, blocks: tuple[Block, ...], held: int | None = None) -> None:
        """Record that the first token came from a replica, so the replica holds these blocks.

        `held`: as for `insert`; this number of leading blocks counts as used. The others count as
        new, so that a prompt that is sent only once does not stay longer than a repeated one. None:
        the number is unknown, so all blocks count as used.
        """
        slot = self._slots.get(key)
        if slot is None:
            return
        bit, both = slot.held, slot.both
        shards, shift = self._shards, self._shift
        new: list[Block] = []
        used = len(blocks) if held is None else held
        last: Mask = None  # as in `insert`
        joined: Mask = None
        # The blocks were inserted, but they may have been evicted, or withdrawn by another request.
        until = used if slot.last is blocks and slot.last_held == held else slot.capacity
        for block in reversed(blocks[used:until]):
            masks = shards[hash(block) >> shift]
            mask = masks.get(block)
            if mask is bit:
                continue
            if mask is None:
                masks[block] = bit
            else:
                if mask is not last:
                    last = mask
                    joined = None if mask & bit else mask | bit
                if joined is None:
                    continue
                masks[block] = joined
            new.append(block)
        last = None
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
        # Entries for later insertions are freed here, so that no choice of a replica waits for it.
        capacity = slot.capacity
        excess = slot.excess + min(capacity >> 4, RESERVE)
        if excess > 0:
            self._evict(slot, min(excess, 2 * len(blocks) + 64))

    def withdraw(self, key: K, blocks: tuple[Block, ...], held: int = 0) -> None:
        """Drop the tentative blocks of an attempt that ended before its first token. `held`: as for
        `insert`.

        Blocks that another request has used since stay. A block that another request waits for is
        added again by the `confirm` of that request.
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
        # Recently inserted blocks are still at the end of the ring.
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
        # this is more than was added, so a slot above its capacity shrinks
        most = 2 * len(new) + 64
        excess = slot.excess
        if excess > 0:
            self._evict(slot, min(excess, most))
        if self._work:
            self.tend(most)

    def tend(self, most: int = AT_ONCE) -> bool:
        """Clean up to `most` entries; returns True if there are more entries to clean.

        Requests clean up enough to keep the index below its limits. Call this method regularly, so
        that the memory of removed replicas is freed even without requests.
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
        """Drop up to `most` entries of a slot whose replica was removed."""
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
        number of skips is limited to four per evicted block (plus 64). After that it evicts every
        block that it reaches.
        """
        slot.last = None
        chances = 4 * excess + 64
        ring, bit, both = slot.ring, slot.held, slot.both
        shards, shift = self._shards, self._shift
        dropped = 0
        last: Mask = None  # as in `insert`; the resulting mask is computed when needed
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
        """Remove `block` from the replica of `slot`."""
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
