"""The load generator's counts equal the upstream's; incomplete answers are not counted."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from router.lab.overhead import load, shapes
from router.lab.overhead.processes import Orderly


@pytest.fixture(scope="module")
def upstream() -> Iterator[list[int]]:
    with Orderly("bench.overhead.upstream", "2") as process:
        yield process.read()


@pytest.fixture(scope="module")
def generator() -> Iterator[Orderly]:
    with Orderly("router.lab.overhead.load") as process:
        yield process


def counters(port: int) -> dict[str, int]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        link.request("GET", "/bench/counters")
        found: dict[str, int] = json.loads(link.getresponse().read())
    finally:
        link.close()
    return found


def order(port: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "loop",
        "host": "127.0.0.1",
        "port": port,
        "connections": 3,
        "seconds": 0.05,
        "repeats": 2,
        "lead": 0.0,
        **more,
    }


@pytest.mark.parametrize("size", [0, 16 * 1024, 2_000_000])
def test_every_json_answer_is_counted_once(
    upstream: list[int], generator: Orderly, size: int
) -> None:
    before = counters(upstream[0])
    result = generator.ask(order(upstream[1], size=size))
    sent = counters(upstream[0])["requests"] - before["requests"]
    assert result["errors"] == {}
    assert result["requests"] == sent > 0
    assert len(result["windows"]) == 2
    inside = sum(window["requests"] for window in result["windows"])
    assert 0 < inside <= result["requests"]
    latency = next(w["latency"] for w in result["windows"] if w["latency"])
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]


def test_every_token_of_a_stream_is_counted_once(upstream: list[int], generator: Orderly) -> None:
    before = counters(upstream[0])
    result = generator.ask(order(upstream[0], tokens=37, pace=0))
    after = counters(upstream[0])
    assert result["errors"] == {}
    assert result["requests"] == after["requests"] - before["requests"] > 0
    assert result["tokens"] == after["tokens"] - before["tokens"] == 37 * result["requests"]


def test_paced_streams_keep_their_pace_and_may_be_cut(
    upstream: list[int], generator: Orderly
) -> None:
    result = generator.ask(
        order(upstream[0], tokens=100_000, pace=200.0, cut=True, wait_begun=True, gaps=True)
    )
    assert result["errors"] == {}
    assert result["requests"] == 0
    # The exact pace is not checked. Without pacing it would be thousands.
    assert 0 < result["tokens"] < 3 * 200 * 5
    assert result["longest_gap_s"] > 0


def test_streams_that_show_one_token_and_rest(upstream: list[int], generator: Orderly) -> None:
    resting = {"connections": 5, "tokens": 9, "pace": 0.001}
    result = generator.ask(
        {"kind": "idle", "host": "127.0.0.1", "port": upstream[0], "root": 0, **resting}
    )
    assert result["errors"] == {}
    assert result["streams"] == 5


SHORT_STREAM = shapes.STREAM_HEAD + shapes.ROLE_CHUNK + shapes.TOKEN_CHUNKS[0] + shapes.LAST_CHUNKS
NO_DONE = shapes.STREAM_HEAD + shapes.TOKEN_CHUNKS[0] * 2 + b"0\r\n\r\n"
STREAM = {"tokens": 2, "pace": 0}


@pytest.mark.parametrize(
    ("answer", "more", "reason"),
    [
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", {}, "status 503"),
        (shapes.json_answer(b'{"choices":[]}'), {}, "short answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", {}, "connection lost"),
        (b"nonsense\r\n\r\n", {}, "unreadable answer"),
        (SHORT_STREAM, STREAM, "short stream"),
        (NO_DONE, STREAM, "short stream"),
    ],
)
def test_an_answer_that_is_not_whole_is_an_error(
    answer: bytes, more: dict[str, Any], reason: str
) -> None:
    class Bad(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(answer)
            self.transport.close()

    async def run() -> dict[str, Any]:
        server = await asyncio.get_running_loop().create_server(Bad, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await load.loop_run(order(port, repeats=1, **more))

    result = uvloop.run(run())
    assert result["requests"] == 0
    assert result["errors"][reason] > 0
    assert set(result["errors"]) == {reason}
