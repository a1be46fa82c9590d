"""Lines of the access log as rows: valid lines, refused lines, and the reported line number."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from router.lab.audit.residency import Row, rows
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
