"""The access log: exact lines for any input, no timer at rest, no wait for a slow sink."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from router.core.errors import Reason
from router.observe.log.access_log import TEXT_CHARS_MAX, AccessLog, ReplacedLogs, milliseconds
from router.observe.log.record import Record
from tests.examples import examples
from tests.harness.replica import eventually
from tests.observe.helpers import run, sink_threads, until, until_sync


def record(**changes: object) -> Record:
    line = Record(1763643460.123, "req-1", "10.1.2.3", "POST", "/v1/chat/completions", "chat")
    line.status = 200
    line.reason = Reason.OK
    for name, value in changes.items():
        setattr(line, name, value)
    return line


def lines_of(path: Path) -> list[dict[str, object]]:
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def written(path: Path, *records: Record) -> tuple[list[dict[str, object]], int]:
    """The lines of these records, and the number of lines that were dropped."""
    dropped: list[int] = []

    async def main() -> None:
        log = AccessLog(str(path))
        for each in records:
            log.write(each)
        log.close()
        dropped.append(log.dropped)

    run(main())
    return lines_of(path), dropped[0]


def test_the_line_is_exact(tmp_path: Path) -> None:
    written(
        tmp_path / "log",
        record(
            model="llama",
            stream=True,
            replica="gpu-2:8000",
            attempts=[
                ("gpu-1:8000", "primary", Reason.REPLICA_RESET, 12.5),
                ("gpu-2:8000", "retry", Reason.OK, 130.25),
            ],
            ttft_ms=55.5,
            duration_ms=143.001,
            bytes_in=512,
            bytes_out=4096,
        ),
        record(status=400, reason=Reason.BAD_JSON),
        record(
            priority="high",
            tenant="0123456789ab",
            session="ba9876543210",
            prompt_tokens=28,
            output_tokens=0,
            cached_tokens=16,
            exact=True,
            estimated_tokens=30,
            blocks=b"\x00\x01\x02\xfd\xfe\xff",
        ),
    )
    assert (tmp_path / "log").read_text() == (
        '{"ts":1763643460.123,"id":"req-1","client":"10.1.2.3","method":"POST",'
        '"path":"/v1/chat/completions","kind":"chat","model":"llama","stream":true,"status":200,'
        '"reason":"ok","replica":"gpu-2:8000","attempts":[["gpu-1:8000","primary","replica_reset",'
        '12.5],["gpu-2:8000","retry","ok",130.25]],"ttft_ms":55.5,"duration_ms":143.001,'
        '"bytes_in":512,"bytes_out":4096}\n'
        '{"ts":1763643460.123,"id":"req-1","client":"10.1.2.3","method":"POST",'
        '"path":"/v1/chat/completions","kind":"chat","status":400,"reason":"bad_json"}\n'
        '{"ts":1763643460.123,"id":"req-1","client":"10.1.2.3","method":"POST",'
        '"path":"/v1/chat/completions","kind":"chat","status":200,"reason":"ok","class":"high",'
        '"tenant":"0123456789ab","session":"ba9876543210","prompt_tokens":28,"output_tokens":0,'
        '"cached_tokens":16,"exact":true,"estimated_tokens":30,"blocks":"AAEC/f7/"}\n'
    )


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, 0.0), (0.0123456, 12.346), (1.0, 1000.0), (600.0, 600000.0)]
)
def test_milliseconds(seconds: float, expected: float) -> None:
    assert milliseconds(seconds) == expected


any_text = st.text(st.characters(exclude_categories=()), max_size=300)


@examples(60)
@given(
    st.lists(
        st.tuples(any_text, st.none() | any_text, any_text, st.floats(), st.integers(0, 2**63)),
        min_size=1,
        max_size=5,
    )
)
def test_every_line_parses_back(
    cases: list[tuple[str, str | None, str, float, int]],
) -> None:
    def seen(text: str) -> str:
        return text.encode("utf-8", "replace").decode()

    records = [
        record(
            path=text,
            model=model,
            attempts=[(replica, "primary", Reason.OK, number)],
            bytes_in=count,
            ttft_ms=1.5,
        )
        for text, model, replica, number, count in cases
    ]
    with tempfile.TemporaryDirectory() as folder:
        lines, dropped = written(Path(folder) / "log", *records)
    assert dropped == 0
    assert len(lines) == len(cases)
    for line, (text, model, replica, number, count) in zip(lines, cases, strict=True):
        assert list(line) == [name for name in Record.__struct_fields__ if name in line]
        assert line.get("path", "") == seen(text[:TEXT_CHARS_MAX])
        assert line.get("model") == (None if model is None else seen(model[:TEXT_CHARS_MAX]))
        assert line.get("bytes_in", 0) == count
        finite = number if abs(number) < float("inf") else None  # JSON has no NaN and no infinity
        assert line["attempts"] == [[seen(replica), "primary", "ok", finite]]


def test_what_cannot_be_encoded_at_all_is_dropped(tmp_path: Path) -> None:
    lines, dropped = written(
        tmp_path / "log",
        record(id="before"),
        record(bytes_in=object()),
        record(path="\ud800", bytes_in=object()),
        record(id="after"),
    )
    assert ([line["id"] for line in lines], dropped) == (["before", "after"], 2)


def test_the_timer_runs_only_while_lines_wait(tmp_path: Path) -> None:
    async def main() -> None:
        log = AccessLog(str(tmp_path / "log"), flush_s=0.01)
        assert not log.is_armed
        for _ in range(3):
            log.write(record())
            assert log.is_armed
            await until(lambda: not log.is_armed)
            await until(lambda: log.waiting_bytes == 0)
        assert len(lines_of(tmp_path / "log")) == 3
        log.write(record())
        log.close()
        assert not log.is_armed

    run(main())
    assert len(lines_of(tmp_path / "log")) == 4
    assert not sink_threads()


def test_a_burst_does_not_wait_for_the_timer(tmp_path: Path) -> None:
    async def main() -> None:
        log = AccessLog(str(tmp_path / "log"), flush_s=3600.0)
        for _ in range(2000):
            log.write(record())
        await until(lambda: (tmp_path / "log").stat().st_size > 100_000)
        log.close()
        assert log.dropped == 0

    run(main())
    assert len(lines_of(tmp_path / "log")) == 2000


def test_off_writes_nothing_and_starts_nothing() -> None:
    async def main() -> None:
        log = AccessLog("")
        assert not log.enabled
        log.write(record())
        assert (log.is_armed, log.waiting_bytes, log.dropped) == (False, 0, 0)
        log.reopen()
        log.close()

    run(main())
    assert not sink_threads()


def test_after_close_lines_are_ignored(tmp_path: Path) -> None:
    async def main() -> None:
        log = AccessLog(str(tmp_path / "log"))
        log.close()
        log.write(record())
        log.reopen()
        log.close()
        assert not log.is_armed

    run(main())
    assert lines_of(tmp_path / "log") == []


def test_a_blocked_sink_costs_lines_and_no_time(tmp_path: Path) -> None:
    queue_bytes = 256 * 1024
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    written = 20_000
    got = b""

    def drain() -> None:
        nonlocal got
        try:
            while part := os.read(reader, 65536):
                got += part
        except BlockingIOError:
            pass

    async def main() -> None:
        log = AccessLog(str(path), flush_s=0.01, queue_bytes=queue_bytes)
        for number in range(written):
            log.write(record(id=f"r{number}"))
            assert log.waiting_bytes <= queue_bytes
        refused = log.dropped
        assert 0 < refused < written
        assert log.is_armed
        await asyncio.sleep(0.03)  # the timer expires while the queue is full and is set again
        assert log.is_armed

        def emptied() -> bool:
            drain()
            return log.waiting_bytes == 0

        await until(emptied)
        log.write(record(id="last"))
        log.close()
        drain()
        assert log.dropped == refused

    run(main())
    os.close(reader)
    lines = [json.loads(line) for line in got.decode().splitlines()]
    assert lines[-1]["id"] == "last"
    numbers = [int(str(line["id"])[1:]) for line in lines[:-1]]
    assert numbers == list(range(len(numbers)))  # the first lines, complete and in order
    until_sync(lambda: not sink_threads())


def test_a_full_disk_costs_lines_and_one_event(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        log = AccessLog("/dev/full", flush_s=0.01)
        for _ in range(10):
            log.write(record())
        await until(lambda: log.dropped == 10)
        log.write(record())
        log.close()
        assert log.dropped == 11
        assert log.waiting_bytes == 0

    run(main())
    assert {entry.getMessage() for entry in caplog.records} == {"access log lines lost"}


def test_a_line_larger_than_the_queue_is_dropped_not_kept_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        log = AccessLog(str(tmp_path / "log"), flush_s=0.01, queue_bytes=100)
        log.write(record())
        await until(lambda: log.dropped == 1)
        assert log.waiting_bytes == 0
        log.close()

    run(main())


# -- logs that a reload has replaced ----------------------------------------------------------


async def closed(path: str, lines: int) -> AccessLog:
    log = AccessLog(path, flush_s=60.0)
    for _ in range(lines):
        log.write(record())
    log.close(timeout_s=0)
    return log


def test_logs_that_have_ended_are_forgotten_and_their_lost_lines_are_counted(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        logs = ReplacedLogs()
        for number in (1, 2, 3):
            logs.add(await closed("/dev/full", 2))
            logs.add(await closed(str(tmp_path / "log"), 2))
            logs.add(await closed("", 2))
            lost = 2 * number
            await eventually(lambda n=lost: (logs.dropped, len(logs)) == (n, 0), "forgotten")  # type: ignore[misc]
        assert (logs.dropped, len(logs)) == (6, 0)
        assert len((tmp_path / "log").read_text().splitlines()) == 6

    run(story())


def test_a_log_that_still_writes_is_kept(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def story() -> None:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        logs = ReplacedLogs()
        logs.add(await closed(str(pipe), 2000))  # more than the pipe has room for
        try:
            assert (logs.dropped, len(logs)) == (0, 1)
        finally:
            os.close(reader)
        await eventually(lambda: logs.dropped > 0 and not len(logs), "the write has failed")

    run(story())


# -- standard output -----------------------------------------------------------------------------


PROGRAM = """
import asyncio, sys
from router.observe.log.access_log import AccessLog
from router.observe.log.record import Record
async def main():
    log = AccessLog("-")
    for number in range(3):
        log.write(Record(1.5, f"r{number}", status=200, reason="ok"))
    log.close()
    print(log.dropped, file=sys.stderr)
asyncio.run(main())
"""


def test_standard_output() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=20)
    assert done.stdout == b"".join(
        b'{"ts":1.5,"id":"r%d","status":200,"reason":"ok"}\n' % number for number in range(3)
    )
    assert done.stderr == b"0\n"
