"""Answers that are neither JSON nor events are relayed unchanged: lines of JSON, audio, text."""

import asyncio
import json
from typing import Any

import pytest

from router.config.model import Continuation
from tests.harness import kit

LINES = [json.dumps({"message": {"content": f"t{n}"}, "done": n == 3}).encode() for n in range(4)]
SPEECH: dict[str, Any] = {"model": "m", "input": "hello", "voice": "alloy"}
OLLAMA: dict[str, Any] = {"model": "m", "messages": [], "stream": True}


def in_pieces(kind: str, pieces: list[bytes], go: asyncio.Event, length: int = 0) -> kit.Behaviour:
    """Send the first piece at once, and the others when `go` is set."""
    framing = f"Content-Length: {length}" if length else "Transfer-Encoding: chunked"

    async def behave(connection: kit.ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(kit.head("HTTP/1.1 200 OK", [f"Content-Type: {kind}", framing]))
            for piece in pieces:
                await connection.send(piece if length else kit.chunk(piece))
                await go.wait()
            await connection.send(b"" if length else kit.LAST_CHUNK)

    return behave


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/jsonl", "text/plain"])
@kit.virtual_scenario
async def test_lines_come_one_by_one(kind: str) -> None:
    go = asyncio.Event()
    pieces = [line + b"\n" for line in LINES]
    timeouts = {"commit_after_s": 0.05}
    async with kit.running(in_pieces(kind, pieces, go), timeouts=timeouts) as router:
        client = await router.send(kit.post_json("/api/chat", OLLAMA))
        await client.recv_until(pieces[0])
        await asyncio.sleep(0.2)
        go.set()
        found = await client.recv_response()
        assert (found.status, found.complete) == (200, True)
        assert found.body == b"".join(pieces)
        assert found.header("content-type") == kind
        assert await router.reason() == "ok"


@pytest.mark.parametrize(
    "path", ["/api/chat", "/api/generate", "/generate", "/invocations", "/v1/audio/speech", "/v1/x"]
)
@kit.virtual_scenario
async def test_streams_of_lines_get_no_sse_comments(path: str) -> None:
    """An early 200 from the router would announce a stream of events."""
    behave = kit.answer_after(0.2, answer_of(LINES[0]))
    async with kit.running(behave, timeouts={"commit_after_s": 0.05}) as router:
        found = await router.ask(kit.post_json(path, OLLAMA))
        assert (found.body, found.header("content-type")) == (LINES[0], "application/x-ndjson")


def answer_of(body: bytes) -> bytes:
    fields = ["Content-Type: application/x-ndjson", f"Content-Length: {len(body)}"]
    return kit.head("HTTP/1.1 200 OK", fields) + body


@kit.virtual_scenario
async def test_lines_that_break_are_cut_and_logged_as_broken() -> None:
    fields = ["Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"]

    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.head("HTTP/1.1 200 OK", fields), kit.chunk(LINES[0] + b"\n"))
        await kit.rest(0.05)
        connection.rst()

    async with kit.running(behave) as router:
        found = await router.ask(kit.post_json("/api/chat", OLLAMA))
        assert not found.complete
        assert found.body.startswith(LINES[0])
        assert await router.reason() == "replica_reset"


@pytest.mark.parametrize("length", [0, 2000], ids=["chunked", "sized"])
@kit.virtual_scenario
async def test_audio_is_relayed_from_its_first_bytes_on(length: int) -> None:
    go = asyncio.Event()
    pieces = [b"\x00\xff" * 500, b"\x01" * 1000]
    async with kit.running(in_pieces("audio/mpeg", pieces, go, length)) as router:
        client = await router.send(kit.post_json("/v1/audio/speech", SPEECH))
        await client.recv_until(b"\x00\xff")
        go.set()
        found = await client.recv_response()
        assert found.complete
        assert found.body == b"".join(pieces)


@kit.virtual_scenario
async def test_a_compressed_stream_of_events_passes_as_it_comes() -> None:
    go = asyncio.Event()
    kind = "text/event-stream\r\nContent-Encoding: gzip"
    async with kit.running(in_pieces(kind, [b"\x1f\x8b\x08one", b"two"], go)) as router:
        client = await router.send(kit.chat(stream=True))
        await client.recv_until(b"one")
        go.set()
        assert (await client.recv_response()).complete


@kit.virtual_scenario
async def test_a_failure_before_the_first_byte_is_hidden() -> None:
    fields = ["Content-Type: audio/mpeg", "Transfer-Encoding: chunked"]

    async def dies(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.head("HTTP/1.1 200 OK", fields))
        connection.rst()

    good = kit.head("HTTP/1.1 200 OK", fields) + kit.chunk(b"sound") + kit.LAST_CHUNK
    async with kit.running(kit.in_turn(dies, then=kit.answer(good)), kit.answer(good)) as router:
        for _ in range(4):
            found = await router.ask(kit.post_json("/v1/audio/speech", SPEECH))
            assert (found.status, found.body) == (200, b"sound")


@kit.virtual_scenario
async def test_json_is_held_until_it_is_whole() -> None:
    """Until the JSON is complete, the request can be retried at another replica."""
    whole = kit.completion()
    begun = whole[:-20]

    async def dies(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(begun)
        await kit.rest(0.05)
        connection.rst()

    async with kit.running(kit.in_turn(dies, then=kit.answer(whole)), kit.answer(whole)) as router:
        for _ in range(4):
            found = await router.ask(kit.chat())
            assert (found.status, found.complete) == (200, True)


@kit.virtual_scenario
async def test_a_sized_stream_of_events_that_breaks_is_not_filled_up() -> None:
    """The router's error event would replace the missing bytes."""
    stream = kit.role() + kit.token("a")
    missing = len(kit.event({"error": {"message": "x" * 400}}))
    fields = ["Content-Type: text/event-stream", f"Content-Length: {len(stream) + missing}"]

    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.head("HTTP/1.1 200 OK", fields), stream)
        connection.fin()
        await kit.until_closed(connection)

    async with kit.running(behave, continuation=Continuation(enabled=False)) as router:
        # The client requests the usage itself, so the router removes no event.
        asked = kit.chat(stream=True, stream_options={"include_usage": True})
        found = await router.ask(asked)
        assert (found.status, found.complete) == (200, False)
        assert found.body == stream
