"""Memory of the prefix index: a bound at every fill, and constant over time."""

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from router.fleet.prefix.index import PrefixIndex
from tests.fleet.prefix.prefix_model import unique

BYTES = 200  # maximum bytes per (block, holder)


@pytest.fixture
def traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


def sent(index: PrefixIndex[int], key: int, blocks: tuple[int, ...], begun: bool = True) -> None:
    held = index.match(blocks).get(key, 0)
    index.insert(key, blocks, held)
    if begun:
        index.confirm(key, blocks, held)


def per_entry(index: PrefixIndex[int], before: int) -> float:
    return (tracemalloc.get_traced_memory()[0] - before) / index.stats.entries


# A dict of n places is full at 2n/3, and with additions and removals it is largest per entry just
# above n/3: shards of 342 and 683 entries are the worst case, 300 and 640 the best.
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("shard", [300, 342, 350, 380, 520, 640, 683, 700])
@pytest.mark.parametrize("begun", [True, False])
def test_bytes_per_entry_while_growing_and_while_blocks_come_and_go(
    shard: int, begun: bool
) -> None:
    before = tracemalloc.get_traced_memory()[0]
    index: PrefixIndex[int] = PrefixIndex(shard * 64)
    for key in range(8):
        index.add_replicas((key,))
    worst = 0.0
    for number in range(shard * 64 * 3 // 32):
        sent(index, number % 8, unique(), begun)
        if number % 64 == 63 and index.stats.entries > 10_000:
            worst = max(worst, per_entry(index, before))
    assert index.stats.evictions > shard * 64
    assert worst <= BYTES


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("replicas", "holders"), [(2, 2), (8, 3), (64, 2), (64, 8), (64, 64)])
def test_bytes_per_entry_with_several_holders(replicas: int, holders: int) -> None:
    before = tracemalloc.get_traced_memory()[0]
    index: PrefixIndex[int] = PrefixIndex(350 * 64)
    for key in range(replicas):
        index.add_replicas((key,))
    worst = 0.0
    for number in range(350 * 64 * 3 // 32 // holders):
        prompt = unique()
        for holder in range(holders):
            # Each request has its own hashes, as from different bodies.
            blocks = tuple([int(str(block)) for block in prompt])
            sent(index, (number + holder) % replicas, blocks)
        if number % 8 == 7 and index.stats.entries > 10_000:
            worst = max(worst, per_entry(index, before))
    assert 0 < worst <= BYTES


@pytest.mark.usefixtures("traced")
def test_flat_under_a_soak_of_unique_prompts() -> None:
    index: PrefixIndex[int] = PrefixIndex(10_000)
    for key in range(4):
        index.add_replicas((key,))

    def soak(requests: int) -> int:
        """Run the index for a long time; return the maximum number of bytes held meanwhile."""
        most = 0
        for number in range(requests):
            key = number % 4
            blocks = unique(8)
            index.insert(key, blocks)
            if number % 3:
                index.confirm(key, blocks)
            else:
                index.withdraw(key, blocks)
            if number % 500 == 499:
                index.clear(key)
            if number % 100 == 0:
                most = max(most, tracemalloc.get_traced_memory()[0])
        return most

    soak(6_000)
    early = soak(6_000)
    assert soak(12_000) <= early * 1.02
    for key in range(4):
        index.remove_replicas((key,))
    assert tracemalloc.get_traced_memory()[0] < early / 20
