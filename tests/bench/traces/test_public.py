"""Traces of Mooncake and Azure as traffic: samples, errors, blocks, and the bound of reuse."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from bench.traces import PublicTrace
from bench.traces.public import chained, spread
from bench.traces.reuse import reuse_bound
from router.fleet.prefix.index import SHARDS
from router.lab.simulator.traffic import Arrival, TraceError
from router.lab.traces import describe
from tests.lab.traces.helpers import json_lines, told
from tests.lab.traces.test_trace import Listed
from tests.places import DATA

MOONCAKE = str(DATA / "traces" / "mooncake_conversation_400.jsonl")
AZURE = str(DATA / "traces" / "azure2023_conv_400.csv")
AZURE_2024 = str(DATA / "traces" / "azure2024.csv")
RAW = [json.loads(line) for line in Path(MOONCAKE).read_text().splitlines()]
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def mooncake_row(timestamp: float = 0, prompt: int = 1100, **more: Any) -> dict[str, Any]:
    row = {
        "timestamp": timestamp,
        "input_length": prompt,
        "output_length": 10,
        "hash_ids": list(range((prompt + 511) // 512)),
    }
    return row | more


def opened(folder: Path, content: str) -> PublicTrace:
    file = folder / "trace"
    file.write_text(content)
    return PublicTrace(str(file))


@pytest.mark.parametrize("path", [MOONCAKE, AZURE, AZURE_2024])
def test_each_pass_has_the_same_requests_in_order_also_from_gzip(path: str, tmp_path: Path) -> None:
    trace = PublicTrace(path)
    found = list(trace)
    assert [a.number for a in found] == list(range(len(found)))
    times = [a.at for a in found]
    assert times == sorted(times) and times[0] == 0.0
    assert [told(a) for a in trace] == [told(a) for a in found]
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(Path(path).read_bytes()))
    assert [told(a) for a in PublicTrace(str(packed))] == [told(a) for a in found]


def test_rows_of_mooncake_are_read_and_spread_over_their_slots() -> None:
    trace = PublicTrace(MOONCAKE)
    assert trace.slot_s == 3.0
    found = list(trace)
    assert [(a.prompt_tokens, a.output_tokens, len(a.blocks)) for a in found] == [
        (row["input_length"], row["output_length"], row["input_length"] // 512) for row in RAW
    ]
    for a, row in zip(found, RAW, strict=True):
        assert -3.0 < a.at - row["timestamp"] / 1000.0 < 3.0
    assert len({a.at for a in found}) == len(found)
    assert [a.at for a in PublicTrace(MOONCAKE, spread_seed=2)] != [a.at for a in found]


def test_rows_of_azure_have_no_blocks() -> None:
    found = list(PublicTrace(AZURE))
    assert (found[0].prompt_tokens, found[0].output_tokens, found[0].blocks) == (374, 44, ())
    assert found[1].at == pytest.approx(4.3145790)
    assert PublicTrace(AZURE).slot_s == 0.0


def test_times_that_are_not_rounded_are_not_spread(tmp_path: Path) -> None:
    trace = opened(tmp_path, json_lines(*(mooncake_row(at) for at in (0, 3000, 4017, 9000))))
    assert [a.at for a in trace] == [0.0, 3.0, 4.017, 9.0]


def test_a_slot_that_is_short_ends_where_the_next_begins() -> None:
    found = list(spread([Arrival(n, n // 100, 1, 1) for n in range(200)], 3.0, 1))
    assert all(arrival.at < 1.0 for arrival in found[:100])
    assert max(arrival.at for arrival in found) > 3.0


def test_a_part_begins_at_zero() -> None:
    times = [a.at for a in PublicTrace(AZURE)]
    wanted = [at - 30.0 for at in times if at >= 30.0][:7]
    assert [a.at for a in PublicTrace(AZURE, since_s=30.0, limit=7)] == pytest.approx(wanted)
    fast = [a.at for a in PublicTrace(AZURE, since_s=30.0, limit=7, speedup=2.0)]
    assert fast == pytest.approx([at / 2.0 for at in wanted])


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (json_lines(mooncake_row(), mooncake_row(1, input_length="12")), 2, "input_length"),
        (json_lines(mooncake_row(), mooncake_row(1, input_length=0)), 2, "input_length is 0"),
        (json_lines(mooncake_row(), mooncake_row(1, output_length=-1)), 2, "output_length is -1"),
        (json_lines(mooncake_row(9000), mooncake_row(8000)), 2, "1 s before the previous row"),
        (json_lines(mooncake_row()) + '{"timestamp": 3, "in', 2, "truncated"),
        (HEAD + "yesterday,1,1\n", 2, "not a time and two numbers"),
        (HEAD + "2023-11-16 18:15:47,x,1\n", 2, "not a time and two numbers"),
        (HEAD + "2023-11-16 18:15:47,1\n", 2, "not a time and two numbers"),
        (HEAD + "2023-11-16 18:15:47,0,1\n", 2, "out of range"),
        (HEAD, 1, "no requests"),
        ("", 1, "no requests"),
        ("time;tokens\n1;2\n", 1, "not a JSON object"),
    ],
)
def test_errors_name_their_line(tmp_path: Path, content: str, line: int, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        list(opened(tmp_path, content))
    assert caught.value.line == line
    assert words in caught.value.problem


# -- blocks ---------------------------------------------------------------------------------------


def common(one: tuple[int, ...] | list[int], other: tuple[int, ...] | list[int]) -> int:
    """The number of common leading blocks."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


ids = st.lists(st.integers(0, 5), max_size=8)


@given(ids, ids)
def test_the_common_prefix_is_that_of_the_ids(one: list[int], other: list[int]) -> None:
    assert common(chained(one), chained(other)) == common(one, other)


def test_no_two_blocks_of_a_large_trace_meet_and_all_shards_fill_evenly() -> None:
    blocks: set[int] = set()
    for first in range(400):  # 400 conversations of 500 blocks, numbered as in traces
        blocks.update(chained(range(first * 500, first * 500 + 500)))
    assert len(blocks) == 200_000
    mean = 200_000 / SHARDS
    for count in (
        Counter(block * SHARDS >> 64 for block in blocks),
        Counter(block % SHARDS for block in blocks),
    ):
        assert 0.9 * mean < min(count.values()) <= max(count.values()) < 1.1 * mean


def test_the_hashes_never_change() -> None:
    """Recorded results depend on the hashes."""
    found = [f"{block:016x}" for block in chained([0, 1, 0])]
    assert found == ["9e3779b9e17d05ac", "e785922be3c82d6d", "973638d3ce0f3ad5"]


# -- reuse ----------------------------------------------------------------------------------------


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


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=30), st.integers(1, 30))
def test_a_finite_cache_is_an_lru(prompts: list[list[int]], capacity: int) -> None:
    blocks = [chained(one) for one in prompts]
    traffic = Listed([Arrival(i, 0.0, 16 * len(b) + 1, 1, b) for i, b in enumerate(blocks)])
    found = reuse_bound(traffic, capacity)
    assert found.hits == slowly(blocks, capacity)
    assert found.asked == sum(len(b) + 1 for b in blocks)


def test_a_cache_for_everything_finds_what_an_infinite_one_does() -> None:
    trace = PublicTrace(MOONCAKE)
    facts = describe(trace)
    assert facts.reuse is not None
    assert reuse_bound(trace, 1_000_000) == facts.reuse
    assert reuse_bound(trace, 1).share < reuse_bound(trace, 3000).share < facts.reuse.share
