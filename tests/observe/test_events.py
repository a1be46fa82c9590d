"""Operational messages: one format, one line per minute and key, never blocking."""

import asyncio
import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from router.observe import events
from router.observe.events import KEYS_MAX, TEXTS_MAX, RateLimit, log_event
from tests.observe.helpers import run, sink_threads, until_sync


class Output:
    """A pipe that the handler writes into."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.writer = writer
        self.handler = events.install(writer)

    def lines(self) -> list[dict[str, object]]:
        events.uninstall(self.handler)
        os.close(self.writer)
        with os.fdopen(self.reader, "rb") as file:
            return [json.loads(line) for line in file]


@pytest.fixture
def output() -> Iterator[Output]:
    output = Output()
    yield output
    events.uninstall(output.handler)
    for fd in (output.reader, output.writer):
        try:
            os.close(fd)
        except OSError:
            pass
    until_sync(lambda: not sink_threads())


def test_an_event_is_one_json_line(output: Output) -> None:
    log_event(logging.WARNING, "replica down", key="a", replica="gpu-1:8000", failures=3, ms=1.5)
    (line,) = output.lines()
    assert isinstance(line.pop("ts"), float)
    assert line == {
        "level": "warning",
        "message": "replica down",
        "replica": "gpu-1:8000",
        "failures": 3,
        "ms": 1.5,
    }


def test_the_next_line_has_the_number_of_suppressed_lines() -> None:
    now = 0.0
    limit = RateLimit(60.0, lambda: now)
    assert limit.admit("a") == 0
    now = 59.9
    assert [limit.admit("a") for _ in range(3)] == [None] * 3
    assert limit.admit("b") == 0
    now = 60.0
    assert limit.admit("a") == 3
    assert limit.admit("a") is None
    now = 200.0
    assert limit.admit("a") == 1


def test_another_problem_of_the_same_source_is_logged(output: Output) -> None:
    for error in ("refused", "timeout", "refused", "timeout"):
        log_event(logging.ERROR, "no answer", key="a", error=error, number=1)
    log_event(logging.ERROR, "no answer", key="b", error="refused")
    lines = [(line["error"], line.get("kept_back")) for line in output.lines()]
    assert lines == [("refused", None), ("timeout", None), ("refused", None)]


def test_numbers_that_vary_are_no_other_problem(output: Output) -> None:
    for number in range(10):
        text = f"<X object at 0x7f{number}e> took {number}.5 s, request 0123abcd{number}"
        log_event(logging.ERROR, "failed", error=text)
    log_event(logging.ERROR, "failed", error="status 401")
    log_event(logging.ERROR, "failed", error="status 503")
    assert len(output.lines()) == 3


def test_the_texts_of_one_source_are_bounded(output: Output) -> None:
    for number in range(1_000):
        log_event(logging.ERROR, "no answer", key="a", error=f"error {number}")
    assert len(output.lines()) == TEXTS_MAX


def test_the_first_line_of_another_problem_counts_the_suppressed_ones(output: Output) -> None:
    for error in ("refused", "refused", "refused", "timeout", "closed"):
        log_event(logging.ERROR, "no answer", error=error)
    assert [line.get("kept_back") for line in output.lines()] == [None, 2, None]


def test_the_limit_remembers_a_bounded_number_of_keys() -> None:
    limit = RateLimit(60.0, lambda: 0.0)
    for number in range(10_000):
        assert limit.admit(number) == 0
    assert limit.admit(9_999) is None
    assert len(limit._seen) == KEYS_MAX


def test_fields_of_any_kind_are_written(output: Output) -> None:
    log_event(
        logging.INFO,
        "odd",
        big=2**200,
        nan=float("nan"),
        text="\ud800" + "x" * 10_000,
        items={1},
        error=ValueError("no"),
        nothing=None,
        level="not this",
    )
    (line,) = output.lines()
    assert line["big"] == str(2**200)
    assert line["nan"] is None
    assert str(line["text"]).startswith("?x")
    assert len(str(line["text"])) < 3000
    assert (line["items"], line["error"], line["level"]) == ([1], "no", "info")


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_makes_one_line(text: str) -> None:
    record = logging.LogRecord("x", logging.INFO, "f.py", 1, "%s", (text,), None)
    record.fields = {"value": text}
    line = events._line(record, 0)
    assert line.count(b"\n") == 1
    json.loads(line)


def test_libraries_come_out_in_the_same_shape(output: Output) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "it broke", "exception": ValueError("why")}
        )
        for number in range(100):  # one log call with varying text
            logging.getLogger("aiohttp.server").error("bad request %d", number)

    run(main())
    broke, *bads = output.lines()
    bad = bads[0]
    assert len(bads) == TEXTS_MAX
    assert (broke["logger"], broke["level"]) == ("asyncio", "error")
    assert str(broke["message"]).startswith("it broke")
    assert "ValueError: why" in str(broke["exception"])
    assert (bad["logger"], bad["message"]) == ("aiohttp.server", "bad request 0")


def test_a_broken_message_raises_nothing(output: Output) -> None:
    broken = logging.LogRecord("x", logging.ERROR, "f.py", 1, "%d", ("not a number",), None)
    output.handler.handle(broken)
    assert output.handler.dropped == 1
    assert output.lines() == []


def test_a_blocked_standard_error_costs_lines_and_no_time(output: Output) -> None:
    fcntl.fcntl(output.writer, fcntl.F_SETPIPE_SZ, 4096)
    said = 5_000
    for number in range(said):
        log_event(logging.ERROR, "storm", key=str(number), number=number, text="x" * 1000)
    lost = output.handler.dropped
    assert 0 < lost < said
    got = b""
    while got.count(b"\n") < said - lost:
        got += os.read(output.reader, 65536)
    # The lost lines depend on the writer's speed; the written ones are complete and in order.
    numbers = [json.loads(line)["number"] for line in got.splitlines()]
    assert len(numbers) == said - lost
    assert numbers[0] == 0
    assert numbers == sorted(set(numbers))
    assert output.lines() == []


def test_a_message_just_before_the_exit_is_written() -> None:
    program = (
        "import logging; from router.observe import events; events.install();"
        "events.log_event(logging.INFO, 'stopped')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20)
    assert done.returncode == 0
    assert json.loads(done.stderr)["message"] == "stopped"
