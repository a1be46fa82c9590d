"""The KV pool: nothing is lost, nothing is held twice, old prefixes go first and from the end."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.emulator.kv import Block, KvPool


def filled(pool: KvPool, hashes: list[int]) -> list[Block]:
    blocks = pool.take(len(hashes))
    pool.commit(blocks, hashes)
    return blocks


def test_freed_blocks_stay_as_cache_until_their_room_is_needed() -> None:
    pool = KvPool(4, 16)
    blocks = filled(pool, [1, 2, 3])
    pool.release(blocks)
    assert (pool.used, pool.free, pool.cached) == (0, 4, 3)
    assert pool.match([1, 2, 3, 4], 4) == blocks
    pool.take(1)  # the one never used
    assert pool.match([1, 2, 3], 3) == blocks
    pool.take(1)  # now the tail of the prefix goes
    assert pool.match([1, 2, 3], 3) == blocks[:2]
    assert pool.evictions == 1


def test_least_recently_freed_goes_first_and_a_hit_renews() -> None:
    pool = KvPool(2, 16)
    old, new = filled(pool, [1]), filled(pool, [2])
    pool.release(old)
    pool.release(new)
    pool.share(pool.match([1], 1))
    pool.release(old)
    pool.take(1)
    assert (pool.match([1], 1), pool.match([2], 1)) == (old, [])


def test_a_match_ends_at_the_first_gap_and_at_the_limit() -> None:
    pool = KvPool(8, 16)
    blocks = filled(pool, [1, 2, 3])
    assert pool.match([1, 9, 3], 3) == blocks[:1]
    assert pool.match([1, 2, 3], 2) == blocks[:2]
    assert pool.match([1, 2, 3], 0) == []


def test_shared_blocks_are_free_only_when_the_last_holder_leaves() -> None:
    pool = KvPool(2, 16)
    blocks = filled(pool, [1])
    pool.share(blocks)
    pool.release(blocks)
    assert pool.used == 1
    pool.release(blocks)
    assert pool.used == 0


def test_a_second_copy_stays_anonymous() -> None:
    pool = KvPool(2, 16)
    first, second = filled(pool, [7]), filled(pool, [7])
    assert pool.match([7], 1) == first
    pool.release(second)
    assert pool.cached == 1


def test_a_full_pool_says_so() -> None:
    pool = KvPool(1, 16)
    pool.take(1)
    with pytest.raises(MemoryError):
        pool.take(1)


def test_a_cleared_cache_hits_nothing_and_holds_what_was_held() -> None:
    pool = KvPool(2, 16)
    blocks = filled(pool, [1])
    pool.clear_cache()
    assert (pool.match([1], 1), pool.used) == ([], 1)
    pool.release(blocks)
    assert pool.used == 0


class Pool(RuleBasedStateMachine):
    """Any order of taking, naming, sharing and releasing."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = KvPool(6, 16)
        self.held: list[list[Block]] = []

    @rule(hashes=st.lists(st.integers(0, 8), max_size=4, unique=True))
    def sequence(self, hashes: list[int]) -> None:
        hits = self.pool.match(hashes, len(hashes))
        if len(hashes) - len(hits) + self.pool.idle(hits) > self.pool.free:
            return
        self.pool.share(hits)
        fresh = self.pool.take(len(hashes) - len(hits))
        self.pool.commit(fresh, hashes[len(hits) :])
        self.held.append(hits + fresh)

    @rule(index=st.integers(0, 9))
    def leave(self, index: int) -> None:
        if self.held:
            self.pool.release(self.held.pop(index % len(self.held)))

    @invariant()
    def conserved(self) -> None:
        held = {block for blocks in self.held for block in blocks}
        assert self.pool.used == len(held)
        assert self.pool.used + self.pool.free == self.pool.num_blocks
        assert self.pool.cached <= self.pool.num_blocks


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
