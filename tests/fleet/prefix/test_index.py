"""The index of held prefixes: its answers, its evictions and their time, its counters."""

from typing import Any

import pytest

from router.fleet.prefix.index import AT_ONCE, REMEMBERED, PrefixIndex
from tests.fleet.prefix.prefix_model import audit, chain, unique

A, B, C = "a", "b", "c"


def index_of(*keys: Any, entries: int = 1_000_000, blocks: int | None = None) -> PrefixIndex[Any]:
    index: PrefixIndex[Any] = PrefixIndex(entries)
    for key in keys:
        index.add_replicas((key,))
        if blocks is not None:
            index.set_capacity(key, blocks)
    return index


def sent(index: PrefixIndex[Any], key: Any, blocks: tuple[int, ...]) -> None:
    """A successful request."""
    held = index.match(blocks).get(key, 0)
    index.insert(key, blocks, held)
    index.confirm(key, blocks, held)


def settle(index: PrefixIndex[Any]) -> None:
    while index.tend():
        pass


# -- matching ---------------------------------------------------------------------------------


def test_the_number_of_held_blocks_per_replica() -> None:
    index = index_of(A, B, C)
    sent(index, A, chain("system", "one", "two", "three"))
    sent(index, B, chain("system", "one"))
    assert index.match(chain("system", "one", "two", "three", "four")) == {A: 4, B: 2}
    assert index.match(chain("system", "one", "two")) == {A: 3, B: 2}
    assert index.match(chain("system", "other")) == {A: 1, B: 1}
    assert index.match(chain("other", "one", "two")) == {}
    assert index.match(()) == {}


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 64, 65, 1024])
def test_any_number_of_replicas(count: int) -> None:
    index = index_of(*range(count))
    system = chain("system", "prompt")
    for key in range(count):
        sent(index, key, (*system, *chain(*(f"{key}.{turn}" for turn in range(key % 4)))))
    assert index.match((*system, 1, 2, 3)) == dict.fromkeys(range(count), 2)
    for key in {0, count // 2, count - 1}:
        own = chain(*(f"{key}.{turn}" for turn in range(key % 4)))
        expected = dict.fromkeys(range(count), 2)
        expected.update({other: 2 + key % 4 for other in range(count) if other == key})
        assert index.match((*system, *own)) == expected
    for key in range(0, count, 2):
        index.remove_replicas((key,))
    assert index.match(system) == dict.fromkeys(range(1, count, 2), 2)
    audit(index)


def test_the_holders_of_a_shared_prompt_are_always_current() -> None:
    """The set of holders of a common prefix is cached; the cached set must not be stale."""
    keys = [*range(20)]
    index = index_of(*keys)
    system = chain("system")
    for key in keys:
        sent(index, key, system)
    everybody = dict.fromkeys(keys, 1)
    for _ in range(2):
        assert index.match((*system, 5)) == everybody
    own = (*system, *chain("own"))
    sent(index, 3, own)
    assert index.match(own) == {**everybody, 3: 2}
    assert index.match((*system, 5)) == everybody  # the previous answer was not changed
    elsewhere = chain("held by all but one")
    for key in keys:
        if key != 3:
            sent(index, key, elsewhere)
    assert index.match(elsewhere) == {key: 1 for key in keys if key != 3}
    for key in (4, 5):
        sent(index, key, own)
    assert index.match(own) == {**everybody, 3: 2, 4: 2, 5: 2}
    index.clear(7)
    del everybody[7]
    assert index.match(system) == everybody
    index.remove_replicas((0,))
    del everybody[0]
    index.add_replicas(("new",))
    assert index.match(system) == everybody
    sent(index, "new", system)
    assert index.match(system) == {**everybody, "new": 1}
    # Cached sets of holders are bounded, and are not kept for ever.
    for key in keys[8:]:
        for number in range(100):
            sent(index, key, chain("system", f"{number}"))
    for number in range(100):
        index.match(chain("system", f"{number}"))
    assert 0 < len(index._remembered) <= REMEMBERED
    for key in [*keys, "new"]:
        index.remove_replicas((key,))
    assert not index._remembered


def test_a_block_is_reused_from_its_second_match_on() -> None:
    index: PrefixIndex[str] = PrefixIndex(1000)
    index.add_replicas(("a",))
    turns = chain("a", "b"), chain("a", "b", "c", "d")
    for prompt in turns:
        held = index.match(prompt).get("a", 0)
        assert not index.is_reused("a", prompt[held - 1]), "no other request has matched it"
        index.insert("a", prompt, held)
        index.confirm("a", prompt, held)
    assert index.is_reused("a", turns[0][-1]), "the second turn has matched it"
    assert not index.is_reused("a", turns[1][-1])
    assert not index.is_reused("b", turns[0][-1]) and not index.is_reused("a", 12345)
    index.clear("a")
    assert not index.is_reused("a", turns[0][-1])


# -- eviction ---------------------------------------------------------------------------------


def test_the_least_recently_used_goes_first() -> None:
    index = index_of(A, blocks=320)
    prompts = [unique() for _ in range(9)]
    for blocks in prompts:
        sent(index, A, blocks)
    newest = [unique() for _ in range(5)]
    for blocks in newest:
        sent(index, A, prompts[0])  # this prompt is used repeatedly
        sent(index, A, blocks)
    assert index.match(prompts[0]) == {A: 32}
    assert index.match(newest[-1]) == {A: 32}
    assert index.match(prompts[1]) == {}
    assert index.stats.evictions > 0
    audit(index)


def test_tails_go_before_their_roots() -> None:
    index = index_of(A, blocks=64)
    one = unique()
    sent(index, A, one)
    depths = [32]
    for _ in range(200):
        sent(index, A, unique(1))
        depths.append(index.match(one).get(A, 0))
    assert depths == sorted(depths, reverse=True)
    assert depths[-1] == 0
    # The prompt is evicted from its end, step by step, and the rest can still be used.
    assert len(set(depths)) > 10


def test_replicas_that_come_together_are_as_if_they_came_one_by_one() -> None:
    index = index_of(A, entries=900)
    while index.holding(A) < 800:
        sent(index, A, unique())
    index.add_replicas([A, B, C])
    assert [index.capacity(key) for key in (A, B, C)] == [300, 300, 300]
    assert index.holding(A) <= 300
    sent(index, C, chain("x"))
    assert index.match(chain("x")) == {C: 1}
    audit(index)


def test_never_more_than_all_entries_while_much_is_left_to_sweep() -> None:
    most = 5 * AT_ONCE
    index = index_of(A, entries=most)
    while index.holding(A) < most - most // 16:
        index.insert(A, unique(), 0)
    index.clear(A)
    assert index.stats.entries > most // 2  # too much to be removed in one call
    index.add_replicas((B,))
    index.remove_replicas((A,))
    index.add_replicas((C,))
    while index.stats.evictions < 100:
        for key in (B, C):
            sent(index, key, unique())
            assert index.stats.entries <= most
    settle(index)
    assert index.stats.entries == index.holding(B) + index.holding(C)
    audit(index)


# -- replicas that restart or leave ---------------------------------------------------------


def test_nothing_is_left_of_a_removed_replica() -> None:
    index = index_of(A, B)
    for key in (A, B):
        for turn in range(30):
            sent(index, key, chain("shared", f"{key}{turn}"))
    before = index.stats.entries
    index.remove_replicas((A,))
    assert index.match(chain("shared", "a1")) == {B: 1}
    assert index.stats.entries == before - 31
    index.remove_replicas((B,))
    assert index.stats[:2] == (0, 0)
    assert not any(index._shards)
    assert not (index._slots or index._keys or index._by_held or index._free or index._live)
    assert not (index._shared or index._work)


def test_a_big_replica_is_gone_at_once_and_swept_in_pieces() -> None:
    index = index_of(A, B)
    shared = unique()
    sent(index, B, shared)
    sent(index, A, shared)
    while index.holding(A) < 4 * AT_ONCE:
        index.insert(A, unique())
    index.remove_replicas((A,))
    assert index.match(shared) == {B: 32}
    assert index.stats.entries > AT_ONCE
    index.add_replicas((C,))  # must not get the number of the replica that is being removed
    assert index.match(shared) == {B: 32}
    assert index.holding(C) == 0
    steps = 0
    while index.tend(1000):
        steps += 1
        audit(index)
    assert steps >= 2 * AT_ONCE // 1000 - 1
    assert index.stats.entries == 32
    assert index.match(shared) == {B: 32}


# -- counting ---------------------------------------------------------------------------------


def test_stats() -> None:
    index = index_of(A, B)
    assert index.stats == (0, 0, 0, 0, 0)
    sent(index, A, chain("p", "q"))  # one lookup without success
    sent(index, B, chain("p"))  # one successful lookup
    index.match(())
    index.match(chain("x"))
    stats = index.stats
    assert (stats.entries, stats.blocks, stats.evictions) == (3, 2, 0)
    assert (stats.lookups, stats.hits) == (3, 1)
