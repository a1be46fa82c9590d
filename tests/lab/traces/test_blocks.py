"""Block ids become hashes with the same common prefixes, spread over all 64 bits."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from router.fleet.prefix.index import SHARDS
from router.lab.traces.blocks import SALTED_BYTES, chained, salted
from tests.lab.traces.test_mooncake import common

ids = st.lists(st.integers(0, 5), max_size=8)


@given(ids, ids)
def test_the_common_leading_run_is_that_of_the_ids(one: list[int], other: list[int]) -> None:
    assert common(chained(one), chained(other)) == common(one, other)
    assert len(chained(one)) == len(one)


@given(st.lists(st.integers(-(1 << 70), 1 << 70), max_size=5))
def test_any_number_is_an_id(one: list[int]) -> None:
    assert all(0 <= block < 1 << 64 for block in chained(one))


def test_no_two_blocks_of_a_large_trace_meet_and_all_shards_fill_evenly() -> None:
    blocks: set[int] = set()
    for first in range(400):  # 400 conversations of 500 blocks, numbered as in traces
        blocks.update(chained(range(first * 500, first * 500 + 500)))
    assert len(blocks) == 200_000
    shards = Counter(hash(block) * SHARDS >> 61 for block in blocks)
    highest = Counter(block * SHARDS >> 64 for block in blocks)
    lowest = Counter(block % SHARDS for block in blocks)
    mean = 200_000 / SHARDS
    for count in (shards, highest, lowest):
        assert len(count) == SHARDS
        assert 0.9 * mean < min(count.values()) <= max(count.values()) < 1.1 * mean


@given(st.lists(st.integers(0, (1 << 48) - 1), max_size=5))
def test_six_bytes_are_one_block(numbers: list[int]) -> None:
    packed = b"".join(n.to_bytes(SALTED_BYTES, "big") for n in numbers)
    blocks = salted(packed)
    assert len(blocks) == len(numbers)
    assert len(set(blocks)) == len(set(numbers))
    assert all(0 <= block < 1 << 64 for block in blocks)


def test_the_hashes_are_the_same_for_ever() -> None:
    """Recorded results depend on the hashes of a seed; the hashes must never change."""
    assert [f"{block:016x}" for block in chained([0, 1, 0])] == FIRST
    assert [f"{block:016x}" for block in salted(bytes(5) + b"\x01")] == ["9e3779b97f4a7c15"]


FIRST = ["9e3779b9e17d05ac", "e785922be3c82d6d", "973638d3ce0f3ad5"]
