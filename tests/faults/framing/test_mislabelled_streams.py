"""An event stream with another Content-Type is relayed event by event, like one with its own."""

import asyncio

import pytest

from router.core.errors import Reason
from tests.harness import kit

USAGE = kit.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})


def mislabelled(label: str, *first: bytes, go: asyncio.Event) -> kit.Behaviour:
    async def behave(connection: kit.ReplicaConnection) -> None:
        while await connection.recv_request():
            kind = f"Content-Type: {label}\r\n" if label else ""
            start = f"HTTP/1.1 200 OK\r\n{kind}Transfer-Encoding: chunked\r\n\r\n"
            await connection.send(start.encode())
            for piece in first:
                await connection.send(kit.chunk(piece))
            await go.wait()
            await connection.send(
                kit.chunk(kit.token("b")), kit.chunk(USAGE + kit.DONE), kit.LAST_CHUNK
            )

    return behave


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize(
    ("label", "first"),
    [
        ("application/json", [kit.role(), kit.token("a")]),
        ("application/json; charset=utf-8", [b": ping\n\n", kit.token("a")]),
        ("text/plain", [b"\r\n", b"event: x\n" + kit.token("a")]),
        ("", [kit.token("a")]),
        ("application/octet-stream", [b"id: 1\n", kit.token("a")]),
    ],
)
@kit.virtual_scenario
async def test_it_is_not_held(label: str, first: list[bytes], is_early: bool) -> None:
    go = asyncio.Event()
    behave = mislabelled(label, *first, go=go)

    async def late(connection: kit.ReplicaConnection) -> None:
        await asyncio.sleep(0.3 if is_early else 0.0)
        await behave(connection)

    timeouts = {"commit_after_s": 0.05 if is_early else 10.0}
    async with kit.running(late, timeouts=timeouts) as router:
        usages = router.usages()
        client = await router.send(kit.chat(stream=True))
        await client.recv_until(kit.token("a"))
        go.set()
        answer = await client.recv_response()
        assert answer.complete
        assert (answer.header("content-type") or "").startswith("text/event-stream")
        assert answer.header("x-accel-buffering") == "no"
        assert answer.events()[-1] == "[DONE]"
        assert b'"usage"' not in answer.body
        assert (usages[0].prompt_tokens, usages[0].output_tokens) == (3, 2)


@kit.virtual_scenario
async def test_its_end_is_judged_like_that_of_a_stream() -> None:
    async def behave(connection: kit.ReplicaConnection) -> None:
        assert await connection.recv_request()
        start = kit.SSE_HEAD.replace(b"text/event-stream", b"application/json")
        await connection.send(start, kit.chunk(kit.token("a")))
        connection.close()

    async with kit.running(behave) as router:
        kit.assert_cut_stream(await router.ask(kit.chat(stream=True)), Reason.REPLICA_RESET)


@kit.routed(kit.json_ok, virtual=True)
async def test_json_stays_json(router: kit.Router) -> None:
    for stream in (False, True):
        answer = await router.ask(kit.chat(stream=stream))
        assert answer.header("content-type") == "application/json"
        assert answer.json()["object"] == "chat.completion"
