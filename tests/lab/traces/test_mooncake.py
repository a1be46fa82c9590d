"""Mooncake's rows: lengths, blocks and slots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from router.lab.simulator.traffic import TraceError
from router.lab.traces import open_trace
from tests.lab.traces.helpers import MOONCAKE, json_lines, mooncake_row, opened, read

RAW = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]


def common(one: list[int] | tuple[int, ...], other: list[int] | tuple[int, ...]) -> int:
    """The number of common leading blocks."""
    same = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        same += 1
    return same


def test_rows_are_read_unchanged() -> None:
    found = list(open_trace(MOONCAKE, spread_seed=None))
    assert [(a.at, a.prompt_tokens, a.output_tokens) for a in found] == [
        (row["timestamp"] / 1000.0, row["input_length"], row["output_length"]) for row in RAW
    ]
    assert [len(a.blocks) for a in found] == [row["input_length"] // 512 for row in RAW]


def test_two_prompts_share_as_many_full_blocks_as_their_ids_do() -> None:
    found = list(open_trace(MOONCAKE))
    shared = 0
    for a, row in zip(found, RAW, strict=True):
        for b, other in zip(found[:50], RAW[:50], strict=True):
            full = min(len(a.blocks), len(b.blocks))
            expected = min(common(row["hash_ids"], other["hash_ids"]), full)
            assert common(a.blocks, b.blocks) == expected
            shared += expected
    assert shared > 400 * 50  # all prompts share their first blocks


def test_slots_are_found_and_arrivals_spread_over_them() -> None:
    trace = open_trace(MOONCAKE)
    assert trace.slot_s == 3.0
    found = list(trace)
    first = found[0].at - 0.0
    # Times are relative to the first arrival, so the others are up to one slot early or late.
    for a, row in zip(found, RAW, strict=True):
        late = a.at - first - row["timestamp"] / 1000.0
        assert -3.0 < late < 3.0
    assert len({a.at for a in found}) == len(found)
    assert [a.at for a in open_trace(MOONCAKE, spread_seed=2)] != [a.at for a in found]


def test_slots_may_be_left_as_they_are() -> None:
    for herd in (open_trace(MOONCAKE, spread_seed=None), open_trace(MOONCAKE, slot_s=0.0)):
        assert len({a.at for a in herd}) == len({row["timestamp"] for row in RAW})


def test_times_that_are_not_quantised_are_not_spread(tmp_path: Path) -> None:
    trace = opened(tmp_path, json_lines(*(mooncake_row(at) for at in (0, 3000, 4017, 9000))))
    assert trace.slot_s == 0.0
    assert [a.at for a in trace] == [0.0, 3.0, 4.017, 9.0]


def test_blocks_of_another_size(tmp_path: Path) -> None:
    row = mooncake_row(prompt=200, hash_ids=list(range(13)))
    with pytest.raises(TraceError, match="block_tokens"):
        read(tmp_path, json_lines(row))
    trace = opened(tmp_path, json_lines(row), block_tokens=16)
    assert trace.block_tokens == 16
    assert [len(a.blocks) for a in trace] == [12]


def test_rows_without_blocks_and_with_sessions(tmp_path: Path) -> None:
    rows = [{**mooncake_row(i), "session_id": who} for i, who in enumerate(["s", 7, None])]
    for row in rows:
        del row["hash_ids"]
    found = read(tmp_path, json_lines(*rows))
    assert [a.blocks for a in found] == [()] * 3
    assert [a.session for a in found] == ["s", "7", None]


def test_rows_out_of_order_are_sorted_where_that_is_asked_for(tmp_path: Path) -> None:
    content = json_lines(*(mooncake_row(at) for at in (0, 5000, 4100, 9000)))
    found = read(tmp_path, content, window_s=1.0)
    assert [a.at for a in found] == [0.0, 4.1, 5.0, 9.0]
    with pytest.raises(TraceError, match=r"out of order by 0\.5 s; sort the rows") as caught:
        read(tmp_path, content + json_lines(mooncake_row(4000)), window_s=0.5)
    assert caught.value.line == 5
