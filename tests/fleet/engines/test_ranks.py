"""The data-parallel ranks that an engine's metrics show, each for itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from router.fleet.engines.common.base import NOTHING_KNOWN, JsonSource, TextSource
from router.fleet.engines.common.exposition import read
from router.fleet.engines.common.registry import ENGINES
from router.fleet.signals import Signals
from tests.fleet.engines.pages import read as page_bytes

(VLLM,) = ENGINES["vllm"].sources
SGLANG, LOADS = ENGINES["sglang"].sources
AWAKE = 'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 1.0'


def ranks_of(source: Any, page: bytes) -> list[Signals]:
    if isinstance(source, JsonSource):
        return source.by_rank(page, NOTHING_KNOWN)
    assert isinstance(source, TextSource)
    return source.by_rank(read(page, source.wanted), NOTHING_KNOWN)


def test_vllm_reports_each_rank() -> None:
    one, other = ranks_of(VLLM, page_bytes("vllm-0.32.txt"))
    assert (one.running, one.waiting, one.kv_usage) == (3, 0, 0.12345)
    assert (other.running, other.waiting, other.kv_usage) == (5, 6, 0.9871)
    assert one.kv_tokens == 27684 * 16
    assert one.adapters == other.adapters == {"sql", "fr"}, "they have no label with the rank"


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


def vllm(*ranks: str, awake: str = AWAKE) -> bytes:
    lines = [f'vllm:num_requests_running{{engine="{rank}"}} 1' for rank in ranks]
    return "\n".join([*lines, awake, ""]).encode()


def test_a_single_rank_is_the_engine() -> None:
    assert ranks_of(VLLM, vllm("0")) == []
    assert ranks_of(SGLANG, page_bytes("sglang-0.5.23.txt")) == []
    assert ranks_of(TextSource("/metrics", (), lambda *_: Signals()), b"") == []


def test_the_rank_of_a_server_with_one_of_several_ranks() -> None:
    """With the external load balancing of vLLM, each rank has a server of its own."""
    assert ranks_of(VLLM, vllm("3")) == []
    assert ranks_of(VLLM, vllm("0", "2")) == []
    assert ranks_of(VLLM, vllm("0", "x")) == []


def test_versions_that_do_not_read_the_header_have_one_rank() -> None:
    assert len(ranks_of(VLLM, vllm("0", "1"))) == 2
    assert ranks_of(VLLM, vllm("0", "1", awake="")) == []
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
        [{"dp_rank": 1}, {"dp_rank": 2}],
        [{"dp_rank": 0}, 7],
        7,
    ],
)
def test_odd_loads_show_no_ranks(loads: object) -> None:
    document = {"version": "0.5.23", "loads": loads}
    assert ranks_of(LOADS, msgspec.json.encode(document)) == []
    assert ranks_of(LOADS, b"[") == []
