"""The access log as traffic: what comes of each line, in the order of arrival."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from router.observe.log.record import Record
from router.simulator.traffic import TraceError
from router.traces import open_trace
from tests.traces.helpers import DATA, opened, read

TRIED = [("r0", "primary", "ok", 1.0)]


def record(at: float, **fields: Any) -> Record:
    """A line as the router writes it, of a request that was answered well."""
    usual: dict[str, Any] = {
        "id": f"{at}",
        "kind": "chat",
        "status": 200,
        "reason": "ok",
        "attempts": TRIED,
        "prompt_tokens": 300,
        "output_tokens": 20,
        "duration_ms": 100.0,
    }
    return Record(ts=1000.0 + at, **(usual | fields))


def written(*records: Record) -> bytes:
    """In the order of their ends, as the log has them."""
    by_end = sorted(records, key=lambda r: r.ts + r.duration_ms / 1000.0)
    return b"".join(msgspec.json.encode(r) + b"\n" for r in by_end)


def test_the_sample() -> None:
    trace = open_trace(DATA / "hedgerow.log", block_tokens=128)
    found = list(trace)
    assert [(a.at, a.prompt_tokens, a.output_tokens) for a in found] == [
        (0.0, 200, 120),
        (1.0, 420, 40),
        (3.5, 512, 56),  # refused by a full fleet: as long as the mean of 120, 40 and 7
        (4.0, 990, 7),  # its client left
    ]
    assert [len(a.blocks) for a in found] == [1, 3, 4, 0]
    assert found[0].blocks == found[1].blocks[:1]
    assert found[1].blocks[:2] == found[2].blocks[:2]
    assert [a.kind for a in found] == ["chat", "chat", "completions", "chat"]
    assert [a.stream for a in found] == [False, True, True, True]
    assert [a.tenant for a in found] == ["0123456789ab", "0123456789ab", "", ""]
    assert [a.priority for a in found] == ["", "high", "", ""]
    assert [a.session for a in found] == [None, "aaaaaaaaaaaa", None, None]
    assert [a.model for a in found] == ["m", "m", "m", "n"]
    assert trace.notes() == {
        "skipped: route that generates nothing": 1,
        "skipped: refused": 1,
        "skipped: last line, still being written": 1,
        "prompt estimated": 2,
        "answer taken to be of mean length": 1,
    }


def test_what_the_router_writes_is_read(tmp_path: Path) -> None:
    content = written(
        record(0.5, priority="batch", tenant="t", session="s", model="m", stream=True),
        record(0.0, kind="messages", blocks=b"\x00\x00\x00\x00\x00\x01" * 2),
    )
    first, second = read(tmp_path, content, block_tokens=128)
    assert (first.kind, len(first.blocks)) == ("messages", 2)
    assert (second.priority, second.tenant, second.session) == ("batch", "t", "s")
    assert (second.model, second.stream, second.at) == ("m", True, 0.5)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"status": 502, "output_tokens": None}, 40),
        ({"status": 503, "attempts": [], "output_tokens": None}, 40),
        ({"status": 429, "output_tokens": None}, 40),
        ({"status": 499, "output_tokens": 3}, 3),
        ({"status": 400}, None),
        ({"status": 404}, None),
        ({"status": 200, "kind": "embeddings"}, None),
        ({"status": 200, "prompt_tokens": None, "attempts": [], "bytes_in": 50}, None),
    ],
    ids=str,
)
def test_which_lines_become_arrivals(
    tmp_path: Path, fields: dict[str, Any], expected: int | None
) -> None:
    content = written(record(0.0, output_tokens=40), record(1.0, **fields))
    found = read(tmp_path, content)
    assert [a.output_tokens for a in found[1:]] == ([] if expected is None else [expected])
    if fields.get("status", 0) >= 400:
        assert len(read(tmp_path, content, skip_failed=True)) == 1


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"prompt_tokens": 77, "estimated_tokens": 99}, 77),
        ({"prompt_tokens": None, "estimated_tokens": 99}, 99),
        ({"prompt_tokens": None, "bytes_in": 401}, 101),
    ],
    ids=["counted", "estimated", "by the bytes"],
)
def test_the_size_of_a_prompt(tmp_path: Path, fields: dict[str, Any], tokens: int) -> None:
    (found,) = read(tmp_path, written(record(0.0, **fields)))
    assert found.prompt_tokens == tokens


def test_answers_that_nobody_counted_are_as_long_as_one_says(tmp_path: Path) -> None:
    content = written(record(0.0, output_tokens=None))
    with pytest.raises(TraceError, match="give output_tokens"):
        read(tmp_path, content)
    assert [a.output_tokens for a in read(tmp_path, content, output_tokens=9)] == [9]


def test_the_order_of_arrival_is_found_again(tmp_path: Path) -> None:
    rng = Random(4)
    records = [
        record(i / 10, duration_ms=rng.expovariate(1 / 20_000), session=f"{i}") for i in range(500)
    ]
    content = written(*records)
    found = read(tmp_path, content)
    assert [a.session for a in found] == [str(i) for i in range(500)]
    assert [a.number for a in found] == list(range(500))


def test_a_row_whose_turn_has_passed_is_an_error(tmp_path: Path) -> None:
    content = written(record(0.0), record(1.0), record(2.0), record(0.5, duration_ms=9_000.0))
    assert len(read(tmp_path, content)) == 4
    with pytest.raises(TraceError, match=r"raise window_s \(it is 0.25\)") as caught:
        read(tmp_path, content, window_s=0.25)
    assert caught.value.line == 4
    with pytest.raises(TraceError, match=r"raise held_rows \(it is 1\)") as caught:
        read(tmp_path, content, held_rows=1)
    assert caught.value.line == 4


def test_a_block_has_as_many_tokens_as_the_log_shows(tmp_path: Path) -> None:
    """Prompts of 512-byte blocks with 5 bytes a token, the longest cut off at 20 blocks."""
    rng = Random(5)
    records = []
    for i in range(400):
        size = rng.randrange(600, 15_000)
        blocks = bytes(6 * min(size // 512, 20))
        records.append(record(float(i), prompt_tokens=size // 5, blocks=blocks))
    trace = opened(tmp_path, written(*records))
    assert trace.block_tokens == pytest.approx(512 / 5, rel=0.03)
    assert all(len(a.blocks) <= a.prompt_tokens // trace.block_tokens for a in trace)


def test_too_few_prompts_say_nothing_of_blocks(tmp_path: Path) -> None:
    content = written(*(record(float(i), blocks=bytes(6)) for i in range(100)))
    assert opened(tmp_path, content).block_tokens == 256


def test_the_last_line_may_be_cut_off_anywhere(tmp_path: Path) -> None:
    whole = written(record(0.0), record(1.0))
    end = whole.index(b"\n") + 1
    for cut in range(end, len(whole) - 2):
        assert len(read(tmp_path, whole[:cut])) == 1
    assert len(read(tmp_path, whole[:-1])) == 2
