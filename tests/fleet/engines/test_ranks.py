"""The data-parallel ranks that an engine's metrics show, each for itself."""

from typing import Any

import msgspec
import pytest

from router.fleet.engines.common.base import MOST_RANKS, NOTHING_KNOWN, JsonSource, TextSource
from router.fleet.engines.common.exposition import read
from router.fleet.engines.common.registry import ENGINES
from router.fleet.signals import Signals
from tests.fleet.engines.pages import read as page_bytes

(VLLM,) = ENGINES["vllm"].sources
SGLANG, LOADS = ENGINES["sglang"].sources


def ranks_of(source: Any, page: bytes) -> list[Signals]:
    if isinstance(source, JsonSource):
        return [*source.by_rank(page, NOTHING_KNOWN).values()]
    assert isinstance(source, TextSource)
    return [*source.by_rank(read(page, source.wanted), NOTHING_KNOWN).values()]


def test_ranks_that_do_not_begin_at_0() -> None:
    """The ranks of one engine may be behind several addresses (hybrid load balancing)."""
    page = page_bytes("vllm-0.32.txt").replace(b'engine="1"', b'engine="5"')
    assert ranks_of(VLLM, page) == [], "they are not consecutive"
    page = page.replace(b'engine="0"', b'engine="4"')
    assert isinstance(VLLM, TextSource)
    found = VLLM.by_rank(read(page, VLLM.wanted), NOTHING_KNOWN)
    assert {rank: signals.running for rank, signals in found.items()} == {4: 3, 5: 5}


def test_vllm_reports_each_rank() -> None:
    one, other = ranks_of(VLLM, page_bytes("vllm-0.32.txt"))
    assert (one.running, one.waiting, one.kv_usage) == (3, 0, 0.12345)
    assert (other.running, other.waiting, other.kv_usage) == (5, 6, 0.9871)
    assert one.kv_tokens == 27684 * 16
    assert one.adapters == other.adapters == {"sql", "fr"}, "they have no label with the rank"


def test_vllm_reports_ranks_that_have_had_no_request() -> None:
    """vLLM has an API server for each rank. They omit a gauge until the rank's first step."""
    page = page_bytes("vllm-0.32-ranks-recorded.txt")
    assert b"num_requests_running{" not in page and b"kv_cache_usage_perc{" not in page
    one, other = ranks_of(VLLM, page)
    assert one == other
    assert (one.running, one.waiting, one.kv_usage) == (0, 0, 0.0)
    used = b"""
vllm:num_requests_running{engine="1",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="1",model_name="tiny"} 1.0
"""
    one, other = ranks_of(VLLM, page + used)
    assert (one.running, one.waiting, one.kv_usage) == (0, 0, 0.0)
    assert (other.running, other.waiting, other.kv_usage) == (2, 1, None)


@pytest.mark.parametrize("name", ["prompt_tokens_total", "generation_tokens_total"])
def test_the_load_of_a_rank_that_has_worked_is_never_guessed(name: str) -> None:
    page = page_bytes("vllm-0.32-ranks-recorded.txt")
    worked = f'vllm:{name}{{engine="1",model_name="tiny"}}'.encode()
    one, other = ranks_of(VLLM, page.replace(worked + b" 0.0", worked + b" 7.0"))
    assert one.running == 0
    assert (other.running, other.waiting, other.kv_usage) == (None, None, None)


@pytest.mark.parametrize("name", ["vllm-0.13.txt", "vllm-0.32.txt"])
def test_the_kv_cache_of_a_rank_is_a_part_of_all_blocks(name: str) -> None:
    """`num_gpu_blocks` is the sum of all ranks, in the series of each rank."""
    assert [rank.kv_tokens for rank in ranks_of(VLLM, page_bytes(name))] == [27684 * 16] * 2


def test_sglang_reports_each_rank() -> None:
    found = ranks_of(SGLANG, page_bytes("sglang-0.5.23-dp.txt"))
    assert [(rank.running, rank.kv_usage) for rank in found] == [(6, 0.28), (6, 0.91)]
    assert all(rank.prompt_tokens is None for rank in found), "the total is that of all ranks"


def test_the_loads_of_sglang_report_each_rank() -> None:
    found = ranks_of(LOADS, page_bytes("sglang-loads-dp.json"))
    assert [(rank.running, rank.waiting, rank.kv_usage) for rank in found] == [
        (6, 3, 0.28),
        (2, 2, 0.91),
    ]
    assert [rank.slots for rank in found] == [256, 256]


def vllm(*ranks: str, has_sleep: bool = True) -> bytes:
    lines = [f'vllm:num_requests_running{{engine="{rank}"}} 1' for rank in ranks]
    awake = [f'vllm:engine_sleep_state{{engine="{rank}",sleep_state="awake"}} 1' for rank in ranks]
    return "\n".join([*lines, *(awake if has_sleep else ()), ""]).encode()


def test_a_single_rank_is_the_engine() -> None:
    assert ranks_of(VLLM, vllm("0")) == []
    assert ranks_of(SGLANG, page_bytes("sglang-0.5.23.txt")) == []
    assert ranks_of(TextSource("/metrics", (), lambda *_: Signals()), b"") == []


@pytest.mark.parametrize(("count", "ranks"), [(MOST_RANKS, MOST_RANKS), (MOST_RANKS + 1, 0)])
def test_more_ranks_than_the_maximum_are_one_replica(count: int, ranks: int) -> None:
    """An engine must not be able to fill the fleet with replicas."""
    assert len(ranks_of(VLLM, vllm(*map(str, range(count))))) == ranks
    document = {"version": "0.5.23", "loads": [{"dp_rank": rank} for rank in range(count)]}
    assert len(ranks_of(LOADS, msgspec.json.encode(document))) == ranks


def test_the_rank_of_a_server_with_one_of_several_ranks() -> None:
    """With the external load balancing of vLLM, each rank has a server of its own."""
    assert ranks_of(VLLM, vllm("3")) == []
    assert ranks_of(VLLM, vllm("0", "2")) == []
    assert ranks_of(VLLM, vllm("0", "x")) == []


def test_versions_that_do_not_read_the_header_have_one_rank() -> None:
    assert len(ranks_of(VLLM, vllm("0", "1"))) == 2
    assert ranks_of(VLLM, vllm("0", "1", has_sleep=False)) == []
    assert ranks_of(VLLM, page_bytes("vllm-0.11.txt")) == []


@pytest.mark.parametrize(
    ("version", "count"),
    [
        *(("0.5.14", 2), ("0.5.23.post1", 2), ("0.6", 2), ("1.0.0", 2)),
        *(("0.5.13", 0), ("0.5.9", 0), ("", 0), ("x", 0), (7, 0), (None, 0)),
    ],
)
def test_loads_of_old_versions_show_no_ranks(version: object, count: int) -> None:
    document = {"version": version, "loads": [{"dp_rank": rank} for rank in range(2)]}
    assert len(ranks_of(LOADS, msgspec.json.encode(document))) == count


@pytest.mark.parametrize(
    "loads",
    [
        None,
        [],
        [{"dp_rank": 0}],
        [{"dp_rank": 0}, {"dp_rank": 0}],
        [{"dp_rank": 1}, {"dp_rank": 3}],
        [{"dp_rank": 0}, 7],
        7,
    ],
)
def test_odd_loads_show_no_ranks(loads: object) -> None:
    document = {"version": "0.5.23", "loads": loads}
    assert ranks_of(LOADS, msgspec.json.encode(document)) == []
    assert ranks_of(LOADS, b"[") == []
