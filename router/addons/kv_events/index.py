"""The exact index: records which replicas hold which KV cache blocks, as the engines report it.

A block is identified by the router's own chain of token IDs (`chains`), never by an engine's hash.
For each replica, a map translates the engine's hashes to the router's hashes, because events of
removed blocks contain only the engine's hash.

Rules
1. Storing is idempotent, because vLLM 0.25+ repeats BlockStored on every reuse. If two requests
   compute a block at the same time, the engine has two copies and sends BlockRemoved for each. The
   first BlockRemoved removes the block from the index, because repeated BlockStored events make
   counting impossible. The block is then missing in the index until its next reuse.
2. Only blocks on the GPU are matched. Other media are kept per (block, medium), so that a block
   removed from one medium stays on the other, and because later blocks may name a parent on another
   medium.
3. A block whose parent is unknown is ignored, because its position in the prompt is not known.
   Recently removed blocks are remembered as possible parents (`_GHOSTS`).
4. Entries are spread over small dicts, because one dict of a million entries takes about 100 ms to
   grow, and every stream would wait for it. For the same reason, `clear` only gives the replica a
   new bit in the masks of holders. Its old blocks are no longer matched, and their entries are
   freed in steps (`purge`).
5. At most `entries` blocks are kept in total. Above this limit, the oldest blocks of the replica
   with the most blocks are removed. The limit is only a safeguard, because the engines themselves
   report the blocks that they remove.

Must never: do I/O, read a clock, or keep an entry of a replica that was removed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import islice
from typing import Final, cast

from router.addons.kv_events.chains import TokenChains, chain, root
from router.addons.kv_events.decode import (
    GPU,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
)
from router.addons.kv_events.holder import (
    LOW,
    SHARDS,
    Holder,
    IndexStats,
    Retired,
    chain_apart,
    count_of,
    new_shards,
)
from router.fleet.replica import Replica

_GHOSTS: Final = 1024  # maximum removed blocks per replica that are remembered
# Behind the first block that no replica holds, every eighth block is looked up.
_SPARSE: Final = 8
_EVICT: Final = 64  # number of entries removed at once when the index is full
_MEDIA: Final = 8  # maximum number of media per replica; an event of a further medium is invalid


class ExactIndex:
    """The KV blocks that all replicas hold. A replica's key may be any hashable object."""

    def __init__(self, entries: int = 1_000_000) -> None:
        self._most = entries
        # the router's hash -> bits of the holders that have the block on the GPU
        self._masks = new_shards()
        self._holders: dict[tuple[Hashable, int], Holder] = {}
        self._ranks: dict[Hashable, set[int]] = {}
        self._by_bit: dict[int, Holder] = {}
        self._sizes: dict[int, int] = {}  # block size -> bits of the holders with this block size
        self._retired: list[Retired] = []
        self._free_bits: list[int] = []
        self._next_bit = 1
        self._count = 0  # number of entries in use, including those that are still to be freed
        self.stats = IndexStats()

    # -- replicas -----------------------------------------------------------------------------

    def add(self, key: Hashable, rank: int = 0) -> None:
        """Add a publisher whose blocks are unknown."""
        if (key, rank) in self._holders:
            return
        holder = Holder(key, rank, self._bit())
        self._holders[key, rank] = holder
        self._ranks.setdefault(key, set()).add(rank)
        self._by_bit[holder.bit] = holder

    def remove(self, key: Hashable, rank: int | None = None) -> None:
        """Remove a replica, or one data-parallel rank of it."""
        for one in [rank] if rank is not None else list(self._ranks.get(key, ())):
            holder = self._holders.pop((key, one), None)
            if holder is not None:
                self._retire(holder)
                ranks = self._ranks[key]
                ranks.discard(one)
                if not ranks:
                    del self._ranks[key]

    def clear(self, key: Hashable, rank: int | None = None, *, complete: bool = False) -> None:
        """Drop all blocks of a replica: the engine restarted, its cache was reset, or its stream is
        broken.

        `complete`: all blocks that the replica stores from now on will be reported.
        """
        for one in [rank] if rank is not None else list(self._ranks.get(key, ())):
            holder = self._holders.get((key, one))
            if holder is not None:
                self._empty(holder)
                # A new process may have another block size.
                self._set_size(holder, 0)
                holder.group = None
                holder.complete = complete
                holder.roots.clear()

    def connected(self, key: Hashable, rank: int, is_connected: bool) -> None:
        """Note that the connection to a publisher was established or lost."""
        holder = self._holders.get((key, rank))
        if holder is not None:
            holder.is_connected = is_connected

    def is_complete(self, key: Hashable, root: int | None = None) -> bool:
        """Return whether the index knows every block that the replica holds.

        `root`: the root of a prompt (`chains.root`); None: of any prompt. The result is False if
        the router subscribed late, after a gap in the messages, without a connection, and after an
        event that the index cannot apply. It is also False if no prompt with this root ever
        matched: the engine may separate or tokenize such prompts otherwise than the router.
        """
        ranks = self._ranks.get(key)
        if not ranks:
            return False
        for rank in ranks:
            holder = self._holders[key, rank]
            if not holder.complete or not holder.is_connected:
                return False
            if root is not None and root not in holder.roots:
                return False
        return True

    def __contains__(self, key: Hashable) -> bool:
        return key in self._ranks

    def __len__(self) -> int:
        """Return the number of entries of all replicas and media, including those still to be
        freed."""
        return self._count

    def entries(self, key: Hashable) -> int:
        """Return the number of blocks that one replica holds, over all media."""
        return sum(self._holders[key, rank].count for rank in self._ranks.get(key, ()))

    def block_size(self, key: Hashable) -> int:
        """Return the tokens per block of a replica; 0: not known yet."""
        ranks = self._ranks.get(key, ())
        return max((self._holders[key, rank].block_size for rank in ranks), default=0)

    # -- queries ------------------------------------------------------------------------------

    def match(
        self,
        chains: TokenChains,
        block_tokens: float | None = None,
        doubtful: set[Hashable] | None = None,
    ) -> dict[Hashable, int]:
        """Return how many leading blocks of a prompt each replica holds on its GPU. Replicas that
        hold none are absent.

        The numbers are in blocks of `block_tokens` tokens, rounded down; None: in blocks of each
        replica's own size. For a replica with data-parallel ranks, the number is that of the rank
        that holds the most, because the router does not know which rank will get the request.

        `doubtful` gets the replicas that may hold more blocks than returned: the comparison was cut
        off, or a replica holds a block without the blocks before it. Engines evict the end of a
        prompt first, so such a replica evicts by another rule, or the index is wrong about it.
        """
        held: dict[Hashable, int] = {}
        masks = self._masks
        for size, members in self._sizes.items():
            unit = size if block_tokens is None else block_tokens
            blocks = chains.of(size)
            alive = members
            depth = 0
            doubts = 0
            for block in blocks:
                mask = members & masks[block & LOW].get(block, 0)
                if mask != alive:
                    left = alive & mask
                    if left != alive:
                        if depth:
                            self._note(held, alive ^ left, depth * size, unit, chains.root)
                        alive = left
                    doubts |= mask ^ left
                    if not alive:
                        break
                depth += 1
            if not alive:
                for block in blocks[depth + 1 :: _SPARSE]:
                    doubts |= members & masks[block & LOW].get(block, 0)
            if alive and depth:
                self._note(held, alive, depth * size, unit, chains.root)
                if chains.is_cut(size):
                    doubts |= alive
            if doubts and doubtful is not None:
                doubtful.update(self._by_bit[bit].key for bit in _bits(doubts))
        return held

    def refined(
        self, estimated: Mapping[Replica, int], chains: object, block_tokens: float
    ) -> dict[Replica, int]:
        """Return how many leading blocks of a prompt each replica holds. All keys are replicas.

        This index alone decides about a replica only if it applied all KV events since the
        replica's start, and its result is certain. Otherwise the larger number counts.
        """
        assert isinstance(chains, TokenChains)
        doubtful: set[Hashable] = set()
        found = self.match(chains, block_tokens, doubtful)
        held = {
            r: n
            for r, n in estimated.items()
            if r in doubtful or not self.is_complete(r, chains.root)
        }
        for key, depth in found.items():
            replica = cast(Replica, key)
            held[replica] = max(depth, held.get(replica, 0))
        return held

    def blocks(self, key: Hashable) -> int | None:
        """Return the number of blocks that one replica holds; `None`: it has no publisher."""
        return self.entries(key) if key in self else None

    def _note(
        self, held: dict[Hashable, int], bits: int, tokens: int, unit: float, root: int
    ) -> None:
        """Note that these holders have the first `tokens` tokens of a prompt."""
        blocks = int(tokens / unit)
        for bit in _bits(bits):
            holder = self._by_bit[bit]
            holder.matched(root)
            if held.get(holder.key, 0) < blocks:
                held[holder.key] = blocks

    # -- events -------------------------------------------------------------------------------

    def apply(self, key: Hashable, rank: int, event: Event) -> None:
        """Apply an event of a publisher.

        Events of an unknown publisher are ignored, because that publisher was removed.
        """
        holder = self._holders.get((key, rank))
        if holder is None:
            return
        if isinstance(event, BlockStored):
            self._stored(holder, event)
        elif isinstance(event, BlockRemoved):
            self._removed(holder, event)
        elif isinstance(event, AllBlocksCleared):
            self._empty(holder)
            holder.complete = True

    def _stored(self, holder: Holder, event: BlockStored) -> None:
        count = len(event.hashes)
        if not self._is_counted(holder, event):
            self.stats.left_out += count
            return
        if event.extras is not None:
            # Prompts with the same token IDs may have other blocks, and the router does not know
            # which of them a request gets.
            holder.complete = False
        if not event.tokens:
            self._moved(holder, event)
            return
        if event.medium == GPU and event.block_size > holder.block_size:
            # The holder had no blocks, or its earlier blocks were partial blocks at the ends of
            # prompts.
            self._empty(holder)
            self._set_size(holder, event.block_size)
        if event.block_size != holder.block_size:
            self.stats.left_out += count
            if count > 1:  # not a partial block at the end of a prompt
                holder.complete = False
            return
        if event.parent is None:
            before = root(event.lora, event.salt)
        else:
            known = holder.find(event.parent)
            if known is None:
                self.stats.orphans += count
                holder.complete = False
                return
            before = known
        if event.extras is None:
            ours = chain(event.tokens, event.block_size, before)
        else:
            ours = chain_apart(event, before)
        if event.medium == GPU:
            # The last block is added first, so that eviction begins with the ends of prompts.
            for index in range(count - 1, -1, -1):
                self._insert(holder, event.hashes[index], ours[index])
        else:
            self._elsewhere(holder, event.medium, event.hashes, ours)

    def _is_counted(self, holder: Holder, event: BlockStored) -> bool:
        """Return whether an event belongs to the KV cache group that the index records.

        The index records the first group with full attention. Engines that do not report the kind
        of a group (vLLM before 0.23) may have a group that holds only parts of a prompt. For them
        it is the first group that stores the beginning of a prompt.
        """
        if event.full is False:
            return False
        if event.group is None or event.group == holder.group:
            return True
        if holder.group is None and (event.full or event.parent is None):
            holder.group = event.group
            return True
        if event.full is None:
            holder.complete = False  # The recorded group may be the wrong one.
        return False

    def _insert(self, holder: Holder, engine_hash: int, ours: int) -> None:
        shard = holder.gpu[engine_hash & LOW]
        old = shard.pop(engine_hash, None)
        if old == ours:
            # The entry moves to the end of the dict, because the block was just used.
            shard[engine_hash] = ours
            self.stats.duplicates += 1
            return
        if old is not None:  # the engine used one hash for two blocks: the last event counts
            self._count -= 1
            holder.count -= 1
            self._unmask(holder, old)
        if self._count >= self._most:
            self._make_room()
        shard[engine_hash] = ours
        self._count += 1
        holder.count += 1
        self.stats.stored += 1
        masks = self._masks[ours & LOW]
        mask = masks.get(ours, 0)
        if mask & holder.bit:
            holder.duplicates[ours] = holder.duplicates.get(ours, 0) + 1
        else:
            # Usually a block has one holder, and all entries of this holder share one int object.
            masks[ours] = mask | holder.bit if mask else holder.bit

    def _unmask(self, holder: Holder, ours: int) -> None:
        """Note that the engine has removed one of its hashes of the block `ours`.

        If it was the last hash, the holder does not hold the block any more.
        """
        duplicates = holder.duplicates.get(ours)
        if duplicates is not None:
            if duplicates > 1:
                holder.duplicates[ours] = duplicates - 1
            else:
                del holder.duplicates[ours]
            return
        self._drop_bit(ours, holder.bit)

    def _drop_bit(self, ours: int, bit: int) -> None:
        masks = self._masks[ours & LOW]
        left = masks.get(ours, 0) & ~bit
        if left:
            masks[ours] = left
        else:
            masks.pop(ours, None)

    def _moved(self, holder: Holder, event: BlockStored) -> None:
        """Apply an event that stores blocks without token IDs, on a medium other than the GPU.

        Unknown hashes are ignored.
        """
        hashes, ours = [], []
        for engine_hash in event.hashes:
            known = holder.find(engine_hash)
            if known is not None:
                hashes.append(engine_hash)
                ours.append(known)
        self.stats.orphans += len(event.hashes) - len(hashes)
        if hashes:
            self._elsewhere(holder, event.medium, hashes, ours)

    def _elsewhere(self, holder: Holder, medium: str, hashes: list[int], ours: list[int]) -> None:
        held = holder.media.get(medium)
        if held is None:
            if len(holder.media) >= _MEDIA:
                self.stats.left_out += len(hashes)
                return
            held = holder.media[medium] = {}
        for engine_hash, block in zip(hashes, ours, strict=True):
            if engine_hash not in held:
                if self._count >= self._most:
                    self._make_room()
                self._count += 1
                holder.count += 1
            held[engine_hash] = block

    def _removed(self, holder: Holder, event: BlockRemoved) -> None:
        if event.group is not None and event.group != holder.group:
            return
        for engine_hash in event.hashes:
            if event.medium == GPU:
                ours = holder.gpu[engine_hash & LOW].pop(engine_hash, None)
                if ours is not None:
                    self._unmask(holder, ours)
            else:
                ours = holder.media.get(event.medium, {}).pop(engine_hash, None)
            if ours is None:
                continue
            self._count -= 1
            holder.count -= 1
            self.stats.removed += 1
            ghosts = holder.ghosts
            ghosts.pop(engine_hash, None)
            ghosts[engine_hash] = ours
            if len(ghosts) > _GHOSTS:
                for old in list(islice(ghosts, _GHOSTS // 4)):
                    del ghosts[old]

    # -- room ---------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Remove some entries: those of cleared or removed holders, else the oldest ones of the
        holder with the most blocks."""
        before = self._count
        if self._retired:
            self.purge(_EVICT)
        if self._count < before:
            return
        holder = max(self._holders.values(), key=count_of)
        holder.complete = False
        for held in holder.media.values():
            for engine_hash in list(islice(held, _EVICT)):
                del held[engine_hash]
                self._evicted(holder)
            if self._count < before:
                return
        for _ in range(SHARDS):
            shard = holder.gpu[holder.turn]
            holder.turn = (holder.turn + 1) & LOW
            # At most a quarter of one of the dicts is removed, so that a new block does not empty a
            # small index.
            for engine_hash in list(islice(shard, min(_EVICT, len(shard) // 4 + 1))):
                self._unmask(holder, shard.pop(engine_hash))
                self._evicted(holder)
            if self._count < before:
                return

    def _evicted(self, holder: Holder) -> None:
        self._count -= 1
        holder.count -= 1
        self.stats.evicted += 1

    def _empty(self, holder: Holder) -> None:
        """Give the holder another bit, so that it holds no block. Its old entries are freed
        later."""
        size = holder.block_size
        self._retire(holder)
        holder.empty(self._bit())
        self._by_bit[holder.bit] = holder
        self._set_size(holder, size)

    def _retire(self, holder: Holder) -> None:
        """Remove the holder's bit from the tables, so that `match` does not find it any more."""
        del self._by_bit[holder.bit]
        self._set_size(holder, 0)
        self._count -= sum(len(held) for held in holder.media.values())
        retired = Retired(holder)
        if retired.gpu:
            self._retired.append(retired)
        else:
            self._free_bits.append(retired.bit)

    def _set_size(self, holder: Holder, size: int) -> None:
        """Set the holder's tokens per block; 0: unknown. `match` ignores holders of unknown block
        size."""
        if holder.block_size:
            left = self._sizes[holder.block_size] & ~holder.bit
            if left:
                self._sizes[holder.block_size] = left
            else:
                del self._sizes[holder.block_size]
        holder.block_size = size
        if size:
            self._sizes[size] = self._sizes.get(size, 0) | holder.bit

    def purge(self, most: int) -> bool:
        """Free up to `most` entries of cleared or removed holders; returns whether some are
        left.
        """
        while self._retired and most > 0:
            retired = self._retired[-1]
            shard = retired.gpu[-1]
            while shard and most > 0:
                _, ours = shard.popitem()
                self._drop_bit(ours, retired.bit)
                self._count -= 1
                most -= 1
            if not shard:
                retired.gpu.pop()
                if not retired.gpu:
                    self._retired.pop()
                    self._free_bits.append(retired.bit)
        return bool(self._retired)

    def _bit(self) -> int:
        """Return the bit for a new holder.

        Freed bits are reused first, so that masks stay short.
        """
        if self._free_bits:
            return self._free_bits.pop()
        bit = self._next_bit
        self._next_bit <<= 1
        return bit


def _bits(mask: int) -> Iterator[int]:
    """Return the bits of a mask, each as a number."""
    while mask:
        bit = mask & -mask
        mask ^= bit
        yield bit
