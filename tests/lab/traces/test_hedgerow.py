"""The access log as traffic: one request per line, in the order of arrival."""

from math import inf, isnan
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from router.lab.simulator.traffic import TraceError
from router.lab.traces import Trace
from router.lab.traces.hedgerow import hashes_of
from router.observe.log.record import Record
from tests.lab.traces.helpers import SAMPLE, opened, read

TRIED = [("r0", "primary", "ok", 1.0)]


def record(at: float, **fields: Any) -> Record:
    """A line as the router writes it for a successful request."""
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
    """Lines in the order of the requests' ends, as in a log."""
    by_end = sorted(records, key=lambda r: r.ts + r.duration_ms / 1000.0)
    return b"".join(msgspec.json.encode(r) + b"\n" for r in by_end)


def test_the_sample() -> None:
    trace = Trace(SAMPLE, block_tokens=128)
    found = list(trace)
    assert [(a.at, a.prompt_tokens, a.output_tokens) for a in found] == [
        (0.0, 200, 120),
        (1.0, 420, 40),
        (3.5, 512, 80),  # refused by a full fleet: output is the mean of 120 and 40
        (4.0, 990, 80),  # the client left after 7 tokens
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
        "skipped: route that generates no tokens": 1,
        "skipped: refused": 1,
        "skipped: incomplete line": 1,
        "prompt estimated": 2,
        "answer length unknown: the mean is used": 1,
        "client disconnected: the answer length is estimated": 1,
    }


def test_events_of_the_router_are_skipped(tmp_path: Path) -> None:
    event = b'{"ts":1.0,"level":"info","message":"ready"}\n'
    row = written(record(0.5, model="m"))
    odd = event.replace(b"}", b',"status":"up"}')  # a field of a row, with another type
    trace = opened(tmp_path, event + row + odd + row)
    assert len(list(trace)) == 2
    assert trace.notes()["skipped: event of the router"] == 2
    with pytest.raises(TraceError, match="only events of the router"):
        opened(tmp_path, event)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("torn", ['{"ts":1000.2,"id":"a"', '"kind":"chat","status":200}', "\0\0"])
def test_incomplete_lines_are_skipped_and_counted(tmp_path: Path, place: int, torn: str) -> None:
    lines = [written(record(0.5)), written(record(0.7))]
    lines.insert(place, torn.encode() + b"\n")
    trace = opened(tmp_path, b"".join(lines))
    assert [arrival.at for arrival in trace] == pytest.approx([0.0, 0.2])
    assert trace.notes() == {"skipped: incomplete line": 1}


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
        ({"status": 429, "reason": "queue_full", "output_tokens": None}, 40),
        ({"status": 429, "reason": "queue_evicted", "output_tokens": None}, 40),
        ({"status": 429, "reason": "key_requests", "output_tokens": None}, None),
        ({"status": 429, "reason": "key_tokens", "output_tokens": None}, None),
        ({"status": 429, "reason": "key_concurrency", "output_tokens": None}, None),
        ({"status": 408, "reason": "deadline_passed", "output_tokens": None}, 40),
        ({"status": 499, "output_tokens": 3}, 40),
        ({"status": 499, "output_tokens": 60}, 61),
        ({"status": 499, "output_tokens": 60, "max_tokens": 60}, 60),
        ({"status": 200, "reason": "write_timeout", "output_tokens": 3}, 40),
        ({"status": 502, "output_tokens": None, "max_tokens": 9}, 9),
        ({"status": 200, "reason": "replica_reset", "output_tokens": 5}, 5),
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


def test_what_the_client_asked_for(tmp_path: Path) -> None:
    content = written(
        record(
            0.0,
            number=1.75,
            deadline_ms=2500.0,
            max_tokens=70,
            hedge="off",
            priority="normal",
            ttft_slo_ms=750.0,
            tpot_slo_ms=40.0,
        ),
        record(1.0, deadline_ms=0.0, hedge="on"),
        record(2.0),
    )
    first, second, third = read(tmp_path, content)
    assert (first.priority, first.priority_number) == ("normal", 1.75)
    assert (first.deadline_s, first.max_tokens, first.hedging) == (2.5, 70, "off")
    assert (second.deadline_s, second.max_tokens, second.hedging) == (0.0, -1, "on")
    assert isnan(third.priority_number)
    assert (third.deadline_s, third.max_tokens, third.hedging) == (inf, -1, "")
    assert (first.ttft_slo_s, first.tpot_slo_s) == (0.75, 0.04)
    assert (second.ttft_slo_s, second.tpot_slo_s) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "leaves_s"),
    [
        ({}, inf),
        ({"status": 499}, 4.5),
        ({"status": 499, "reason": "client_gone"}, 4.5),
        ({"status": 200, "reason": "write_timeout"}, 4.5),
        ({"status": 408, "reason": "deadline_passed"}, inf),
        ({"status": 503, "reason": "queue_timeout"}, inf),
    ],
    ids=str,
)
def test_when_clients_left(tmp_path: Path, fields: dict[str, Any], leaves_s: float) -> None:
    (found,) = read(tmp_path, written(record(0.0, **{**fields, "duration_ms": 4500.0})))
    assert found.leaves_s == leaves_s


def test_what_became_of_it(tmp_path: Path) -> None:
    whole = {
        "stream": True,
        "ttft_ms": 500.0,
        "duration_ms": 2400.0,
        "queue_ms": 120.0,
        "cached_tokens": 256,
        "exact": True,
        "replica": "r3",
        "slots": 64,
        "kv_tokens": 9000,
    }
    (arrival,) = read(tmp_path, written(record(0.0, **whole)))
    found = arrival.logged
    assert found is not None
    assert (found.reason, found.ended_s, found.ttft_s) == ("ok", 2.4, 0.5)
    assert found.tpot_s == pytest.approx(1.9 / 19)
    assert (found.wait_s, found.replica, found.slots, found.kv_tokens) == (0.12, "r3", 64, 9000)
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (300, 256, 20)


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


def test_the_order_of_arrival_is_found_again(tmp_path: Path) -> None:
    rng = Random(4)
    records = [
        record(i / 10, duration_ms=rng.expovariate(1 / 20_000), session=f"{i}") for i in range(500)
    ]
    content = written(*records)
    found = read(tmp_path, content)
    assert [a.session for a in found] == [str(i) for i in range(500)]
    assert [a.number for a in found] == list(range(500))


def test_a_block_has_as_many_tokens_as_the_log_shows(tmp_path: Path) -> None:
    """Prompts have blocks of 512 bytes, 5 bytes per token; the longest is cut at 20 blocks."""
    rng = Random(5)
    records = []
    for i in range(400):
        size = rng.randrange(600, 15_000)
        blocks = bytes(6 * min(size // 512, 20))
        records.append(record(float(i), prompt_tokens=size // 5, blocks=blocks))
    trace = opened(tmp_path, written(*records))
    assert trace.block_tokens == pytest.approx(512 / 5, rel=0.03)
    assert all(len(a.blocks) <= a.prompt_tokens // trace.block_tokens for a in trace)


def test_the_last_line_may_be_cut_off_anywhere(tmp_path: Path) -> None:
    whole = written(record(0.0), record(1.0))
    end = whole.index(b"\n") + 1
    for cut in range(end, len(whole) - 2):
        assert len(read(tmp_path, whole[:cut])) == 1
    assert len(read(tmp_path, whole[:-1])) == 2


def test_six_bytes_of_a_log_are_one_hash() -> None:
    """Recorded results depend on the hashes; they must never change."""
    assert [f"{one:016x}" for one in hashes_of(bytes(5) + b"\x01")] == ["9e3779b97f4a7c15"]
    assert len(set(hashes_of(bytes(range(60))))) == 10
