"""wrk sends the requests of the script, and its counts equal the upstreams' counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.overhead import upstream, wrk
from bench.overhead.measure import counters
from router.lab.overhead import shapes
from router.lab.overhead.processes import Orderly

PROGRAM = wrk.find()
needs_wrk = pytest.mark.skipif(PROGRAM is None, reason=wrk.MISSING)


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    with Orderly("bench.overhead.upstream", "2") as process:
        yield process.read()


@needs_wrk
@pytest.mark.parametrize("size", [0, 16 * 1024, 2_000_000])
@pytest.mark.parametrize("connections", [1, 8])
def test_each_answer_is_one_request_of_the_upstream(
    size: int, connections: int, ports: list[int], tmp_path: Path
) -> None:
    before = counters(ports)["requests"]
    found = wrk.Wrk(PROGRAM or "", tmp_path, ()).run(ports[1], wrk.Load(connections, size), 1)
    received = counters(ports)["requests"] - before
    assert found.errors == {} and found.answers > 0
    assert found.answers <= received <= found.answers + connections
    assert found.bytes >= found.answers * len(shapes.CHAT_BODY)
    assert 0 < found.p50_us <= found.p99_us


@needs_wrk
def test_streams_are_read_to_their_end(ports: list[int], tmp_path: Path) -> None:
    before = counters(ports)["tokens"]
    load = wrk.Load(4, ask=shapes.Ask(100, 0.0))
    found = wrk.Wrk(PROGRAM or "", tmp_path, ()).run(ports[1], load, 1)
    sent = counters(ports)["tokens"] - before
    assert found.errors == {} and found.answers > 0
    # The upstream wrote ahead into the sockets of streams that the end of the run aborted.
    assert found.answers * 100 <= sent <= (found.answers + 4) * 100


@pytest.mark.parametrize("size", [0, 16 * 1024])
def test_the_upstream_knows_a_whole_request_from_a_part(size: int) -> None:
    request = shapes.Prompt("127.0.0.1", size).next()
    body_at = request.index(b"\r\n\r\n") + 4
    assert upstream.whole_chat(request) == body_at
    assert upstream.whole_chat(request.replace(b"Content-Length", b"content-length")) == body_at
    assert upstream.whole_chat(request[:-1]) == 0
    assert upstream.whole_chat(request + b"P") == 0  # pipelined: left to the parser
    assert upstream.whole_chat(request[:100]) == 0
    assert upstream.whole_chat(request.replace(b"Content-Length", b"X-Content-Len")) == 0
    assert upstream.whole_chat(request.replace(b"/v1/chat", b"/v2/chat")) == 0
