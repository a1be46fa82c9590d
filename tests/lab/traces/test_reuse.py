"""The hits of a finite cache, compared with a simple, slow LRU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.lab.simulator.traffic import Arrival
from router.lab.traces import describe, open_trace, reuse_bound
from router.lab.traces.blocks import chained
from tests.lab.traces.helpers import MOONCAKE
from tests.lab.traces.test_facts import Listed


def slowly(prompts: list[tuple[int, ...]], capacity: int) -> int:
    """Hits of an LRU cache implemented as a list in order of use."""
    cache: list[int] = []
    hits = 0
    for blocks in prompts:
        run = 0
        while run < len(blocks) and blocks[run] in cache:
            run += 1
        hits += run
        for block in blocks[::-1]:
            if block in cache:
                cache.remove(block)
            cache.append(block)
        cache = cache[-capacity:]
    return hits


prompts = st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=30)


@given(prompts, st.integers(1, 30))
def test_a_finite_cache_is_an_lru(ids: list[list[int]], capacity: int) -> None:
    blocks = [chained(one) for one in ids]
    traffic = Listed([Arrival(i, 0.0, 16 * len(b) + 1, 1, b) for i, b in enumerate(blocks)])
    found = reuse_bound(traffic, capacity)
    assert found.hits == slowly(blocks, capacity)
    assert found.asked == sum(len(b) + 1 for b in blocks)


def test_a_cache_for_everything_finds_what_an_infinite_one_does() -> None:
    trace = open_trace(MOONCAKE)
    facts = describe(trace)
    assert reuse_bound(trace, facts.distinct_blocks) == facts.reuse
    shares = [reuse_bound(trace, size).share for size in (1, 3000, 6000, facts.distinct_blocks)]
    assert shares == sorted(shares)
    assert shares[0] < shares[1] < shares[2] < shares[3]


def test_tails_go_before_their_roots() -> None:
    long, other = chained([1, 2, 3, 4]), chained([9])
    traffic = Listed([Arrival(i, 0.0, 64, 1, b) for i, b in enumerate([long, other, long])])
    assert reuse_bound(traffic, 4).hits == 3


def test_a_prompt_larger_than_the_cache_leaves_its_beginning() -> None:
    long = chained(list(range(10)))
    traffic = Listed([Arrival(i, 0.0, 160, 1, long) for i in range(2)])
    assert reuse_bound(traffic, 4).hits == 4


def test_a_cache_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity_blocks"):
        reuse_bound(Listed([]), 0)
