"""Rows of logs, the stays of requests at replicas."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.lab.audit.residency import SLACK_S, InOrder, Row, Stay, rows, stay_of
from router.lab.simulator.traffic import TraceError
from router.lab.traces.lines import INCOMPLETE, Lines
from router.observe.log.record import Record

GOOD = b'{"ts":1.5,"id":"a","reason":"ok","replica":"r0","duration_ms":20.0}\n'


def read(path: Path, content: bytes) -> tuple[list[Row], Lines]:
    file = path / "access.log"
    file.write_bytes(content)
    with closing(Lines(str(file))) as lines:
        return list(rows(lines)), lines


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = Record(
        ts=10.0,
        id="x",
        client="10.0.0.1",
        kind="chat",
        model="m",
        stream=True,
        status=200,
        reason="ok",
        replica="r1",
        attempts=[("r0", "primary", "connect_failed", 1.0), ("r1", "retry", "ok", 250.0)],
        ttft_ms=100.0,
        duration_ms=251.0,
        bytes_in=4000,
        priority="high",
        tenant="3f9a0c61d2b4",
        prompt_tokens=1000,
        output_tokens=20,
        cached_tokens=512,
        exact=True,
        estimated_tokens=990,
        blocks=b"123456",
        queue_ms=12.5,
    )
    (row,), _ = read(tmp_path, msgspec.json.encode(record) + b"\n")
    for name in Row.__struct_fields__:
        assert getattr(row, name) == getattr(record, name), name
    assert row.ended == pytest.approx(10.251)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"7\n", "expected `object`"),
        (b'{"timestamp": 5, "input_length": 3}\n', "`ts`"),
        (b'{"ts":1.0,"id":"a"}\n', "`reason`"),
        (b'{"ts":"noon","reason":"ok"}\n', "$.ts"),
        (b'{"ts":-1.0,"reason":"ok"}\n', "$.ts"),
        (b'{"ts":1.0,"reason":"ok","prompt_tokens":-4}\n', "$.prompt_tokens"),
        (b'{"ts":1.0,"reason":"ok","duration_ms":-4}\n', "$.duration_ms"),
        (b'{"ts":1.0,"reason":"ok","attempts":[["r",1]]}\n', "$.attempts"),
    ],
)
def test_a_broken_line_is_an_error_with_its_number(tmp_path: Path, line: bytes, told: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, GOOD + b"\n" + line + GOOD)
    assert caught.value.line == 3
    assert told.lower() in str(caught.value).lower()


@pytest.mark.parametrize("more", [b"", b',"reason":"ok"', b',"replica":7'])
def test_events_of_the_router_are_skipped(tmp_path: Path, more: bytes) -> None:
    event = b'{"ts":1.0,"level":"info","message":"ready"' + more + b"}\n"
    found, _ = read(tmp_path, event + GOOD + event + GOOD)
    assert [row.ts for row in found] == [1.5, 1.5]


TORN = (
    GOOD[:1],
    GOOD[:40],
    GOOD[10:],
    GOOD[:-3],
    GOOD[:30] + GOOD,  # two lines in one
    b"\0" * 4096 + GOOD,  # the log was copied and truncated
    b'{"ts":1.0,"reason":"\xff"}',
    b"Traceback (most recent call last):",
)


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_incomplete_line_is_skipped_and_counted(tmp_path: Path, torn: bytes, place: int) -> None:
    parts = [GOOD, GOOD]
    parts.insert(place, torn if place == 2 else torn.rstrip() + b"\n")
    found, lines = read(tmp_path, b"".join(parts))
    assert [row.ts for row in found] == [1.5, 1.5]
    assert lines.notes == {INCOMPLETE: 1}


def row(**fields: object) -> Row:
    given = {"ts": 100.0, "reason": "ok", "kind": "chat", "replica": "r0", "stream": True}
    return Row(**{**given, **fields})  # type: ignore[arg-type]


def stay(start: float, end: float) -> Stay:
    found = stay_of(row(ts=start, duration_ms=(end - start) * 1e3))
    assert found is not None
    return found


def test_a_stream_is_dispatched_prefilled_and_decoded() -> None:
    found = stay_of(
        row(ttft_ms=500.0, duration_ms=2000.0, attempts=[("r0", "primary", "ok", 1900.0)])
    )
    assert found is not None
    found.place(0.3, 0.02)
    times = (found.start, found.prefill, found.first, found.end)
    assert times == pytest.approx((100.1, 100.2, 100.5, 102.0))
    assert found.waited == pytest.approx(0.1)
    assert found.ttft == pytest.approx(0.5)


def test_the_time_of_earlier_attempts_was_not_spent_at_the_replica() -> None:
    attempts = [("r1", "primary", "replica_reset", 700.0), ("r0", "retry", "ok", 1000.0)]
    found = stay_of(row(ttft_ms=900.0, duration_ms=1700.0, attempts=attempts))
    assert found is not None
    assert found.start == pytest.approx(100.7)
    assert found.waited == pytest.approx(0.7)


def test_a_request_without_a_replica_has_no_residency() -> None:
    assert stay_of(row(replica="", attempts=[("r1", "primary", "connect_failed", 1.0)])) is None


def test_a_prefill_cannot_begin_before_the_request_came() -> None:
    found = stay_of(row(ttft_ms=500.0, duration_ms=2000.0))
    assert found is not None
    found.place(0.9, 0.02)
    assert found.prefill == found.start


def test_without_a_stream_the_first_token_is_estimated_from_the_end() -> None:
    found = stay_of(row(stream=False, ttft_ms=5000.0, duration_ms=5000.0, output_tokens=101))
    assert found is not None
    assert not found.streamed
    found.place(0.5, 0.02)
    assert found.first == pytest.approx(103.0)
    assert found.prefill == pytest.approx(102.5)


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"prompt_tokens": 7, "estimated_tokens": 5, "bytes_in": 400}, 7),
        ({"estimated_tokens": 5, "bytes_in": 400}, 5),
        ({"bytes_in": 400}, 100),
        ({}, 0),
    ],
)
def test_a_prompt_is_as_long_as_the_best_count_says(fields: dict[str, int], tokens: int) -> None:
    found = stay_of(row(**fields))
    assert found is not None
    assert found.prompt == tokens


SPANS = st.lists(st.tuples(st.floats(0.0, 1000.0), st.floats(0.0, 300.0)), min_size=1, max_size=60)


@given(SPANS)
def test_from_the_order_of_ends_to_that_of_starts(spans: list[tuple[float, float]]) -> None:
    stays = sorted((stay(at, at + length) for at, length in spans), key=lambda one: one.end)
    longest = max(one.end - one.start for one in stays)
    order = InOrder(stays, longest)
    assert [one.start for one in order] == sorted(one.start for one in stays)
    assert order.late == 0


@given(SPANS)
def test_with_an_unknown_longest_request_none_is_lost_and_late_ones_are_counted(
    spans: list[tuple[float, float]],
) -> None:
    stays = sorted((stay(at, at + length) for at, length in spans), key=lambda one: one.end)
    order = InOrder(stays)
    found = list(order)
    assert sorted(map(id, found)) == sorted(map(id, stays))
    latest, late = 0.0, 0
    for one in found:
        late += one.start < latest
        latest = max(latest, one.start)
    assert order.late == late
    assert order.longest_s == max(one.end - one.start for one in stays)


def test_no_more_are_held_than_allowed() -> None:
    drawn = 0

    def endless() -> object:
        nonlocal drawn
        for number in range(1000):
            drawn += 1
            yield stay(100.0, 101.0 + number * 1e-3)

    order = InOrder(endless(), 500.0, most=10)  # type: ignore[arg-type]
    for given_out, _ in enumerate(order):
        assert drawn - given_out <= 11


def test_a_line_within_the_slack_is_not_late() -> None:
    order = InOrder([stay(100.0, 110.0), stay(110.0 - SLACK_S - 9.0, 110.0 - SLACK_S)], 10.0)
    assert [one.start for one in order] == [110.0 - SLACK_S - 9.0, 100.0]
    assert order.late == 0
