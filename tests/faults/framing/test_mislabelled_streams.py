"""An event stream with another Content-Type is relayed event by event, like one with its own."""

import asyncio

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    event,
    role,
    token,
)
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import assert_cut_stream, running, virtual_scenario

USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})


def mislabelled(label: str, *first: bytes, go: asyncio.Event) -> Behaviour:
    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            kind = f"Content-Type: {label}\r\n" if label else ""
            start = f"HTTP/1.1 200 OK\r\n{kind}Transfer-Encoding: chunked\r\n\r\n"
            await connection.send(start.encode())
            for piece in first:
                await connection.send(chunk(piece))
            await go.wait()
            await connection.send(chunk(token("b")), chunk(USAGE + DONE), LAST_CHUNK)

    return behave


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize(
    ("label", "first"),
    [
        ("application/json", [role(), token("a")]),
        ("application/json; charset=utf-8", [b": ping\n\n", token("a")]),
        ("text/plain", [b"\r\n", b"event: x\n" + token("a")]),
        ("", [token("a")]),
        ("application/octet-stream", [b"id: 1\n", token("a")]),
    ],
)
@virtual_scenario
async def test_it_is_not_held(label: str, first: list[bytes], is_early: bool) -> None:
    go = asyncio.Event()
    behave = mislabelled(label, *first, go=go)

    async def late(connection: ReplicaConnection) -> None:
        await asyncio.sleep(0.3 if is_early else 0.0)
        await behave(connection)

    timeouts = {"commit_after_s": 0.05 if is_early else 10.0}
    async with running(late, timeouts=timeouts) as router:
        usages = router.usages()
        client = await router.send(chat(stream=True))
        await client.recv_until(token("a"))
        go.set()
        answer = await client.recv_response()
        assert answer.complete
        assert (answer.header("content-type") or "").startswith("text/event-stream")
        assert answer.header("x-accel-buffering") == "no"
        assert answer.events()[-1] == "[DONE]"
        assert b'"usage"' not in answer.body
        assert (usages[0].prompt_tokens, usages[0].output_tokens) == (3, 2)


@virtual_scenario
async def test_its_end_is_judged_like_that_of_a_stream() -> None:
    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        start = SSE_HEAD.replace(b"text/event-stream", b"application/json")
        await connection.send(start, chunk(token("a")))
        connection.close()

    async with running(behave) as router:
        assert_cut_stream(await router.ask(chat(stream=True)), Reason.REPLICA_RESET)


@virtual_scenario
async def test_json_stays_json() -> None:
    async with running(json_ok) as router:
        for stream in (False, True):
            answer = await router.ask(chat(stream=stream))
            assert answer.header("content-type") == "application/json"
            assert answer.json()["object"] == "chat.completion"
