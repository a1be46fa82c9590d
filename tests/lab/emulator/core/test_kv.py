"""The KV pool: no block is lost or held twice; old prefixes are evicted first, from their end."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.lab.emulator.core.kv import Block, KvPool
from tests.examples import examples


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
    pool.take(1)  # the unused block
    assert pool.match([1, 2, 3], 3) == blocks
    pool.take(1)  # now the tail of the prefix is evicted
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


def test_the_free_queue_keeps_its_order_whichever_block_leaves_it() -> None:
    pool = KvPool(5, 16)
    blocks = filled(pool, [1, 2, 3, 4, 5])
    for block in blocks:
        pool.release([block])
    assert pool.state()[2] == [0, 1, 2, 3, 4]
    assert pool.take(1) == blocks[:1]  # the first block, and its hash is removed
    assert pool.state()[1:] == ([None, 2, 3, 4, 5], [1, 2, 3, 4])
    pool.share(pool.match([2], 1))  # the first block again, ...
    assert pool.state()[2] == [2, 3, 4]
    pool.share(pool.match([4], 1))  # ... a middle block, ...
    assert pool.state()[2] == [2, 4]
    pool.share(pool.match([5], 1))  # ... and the last block
    assert pool.state()[2] == [2]
    pool.release(blocks[4:])
    pool.release(blocks[:2])
    assert pool.state()[::2] == ([0, 0, 0, 1, 0], [2, 4, 1, 0])


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
        self.free: list[int] = []  # numbers of freed blocks, in the order of their release

    @rule(hashes=st.lists(st.integers(0, 8), max_size=4, unique=True))
    def sequence(self, hashes: list[int]) -> None:
        hits = self.pool.match(hashes, len(hashes))
        if len(hashes) - len(hits) + self.pool.idle(hits) > self.pool.free:
            return
        for block in hits:
            if not block.refs:
                self.free.remove(block.number)
        self.pool.share(hits)
        known = len(self.pool.state()[0])
        fresh = self.pool.take(len(hashes) - len(hits))
        reused = [block.number for block in fresh if block.number < known]
        assert reused == self.free[: len(reused)]
        del self.free[: len(reused)]
        self.pool.commit(fresh, hashes[len(hits) :])
        self.held.append(hits + fresh)

    @rule(index=st.integers(0, 9))
    def leave(self, index: int) -> None:
        if self.held:
            blocks = self.held.pop(index % len(self.held))
            self.free += [block.number for block in reversed(blocks) if block.refs == 1]
            self.pool.release(blocks)

    @invariant()
    def conserved(self) -> None:
        held = {block for blocks in self.held for block in blocks}
        assert self.pool.used == len(held)
        assert self.pool.used + self.pool.free == self.pool.num_blocks
        assert self.pool.cached <= self.pool.num_blocks
        refs, names, free = self.pool.state()
        assert free == self.free
        assert sum(refs) == sum(map(len, self.held))
        assert len([name for name in names if name is not None]) == self.pool.cached


TestPool = Pool.TestCase
TestPool.settings = examples(60, steps=30)
