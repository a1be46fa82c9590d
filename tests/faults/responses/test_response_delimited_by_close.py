"""A response that ends with its connection: a clean end completes it, a reset truncates it."""

import asyncio

import pytest

from tests.harness.behaviours import answer_then_fin
from tests.harness.messages import chat, request, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, scenario

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
OLD = b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\n"


@pytest.mark.parametrize("head", [PLAIN, OLD])
@scenario
async def test_a_clean_end_is_given_a_final_chunk(head: bytes) -> None:
    async with running(answer_then_fin(head + b"hello world")) as router:
        client = await router.client()
        for _ in range(2):  # the router frames it again, so the client's connection stays open
            await client.send(request("/plain"))
            answer = await client.recv_response()
            assert answer.complete
            assert answer.body == b"hello world"
            assert answer.header("transfer-encoding") == "chunked"
        assert {line["reason"] for line in await router.log(2)} == {"ok"}


@scenario
async def test_a_stream_too() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    body = token("a") + b"data: [DONE]\n\n"
    async with running(answer_then_fin(head + body)) as router:
        answer = await router.ask(chat(stream=True))
        assert answer.complete
        assert answer.body == body
        assert await router.reason() == "ok"


@scenario
async def test_a_reset_cuts_it() -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(PLAIN, b"hello")
        await go.wait()
        connection.rst()

    async with running(behave) as router:
        client = await router.send(request("/plain"))
        await client.recv_until(b"hello")
        go.set()
        answer = await client.recv_response()
        assert not answer.complete
        assert await router.reason() == "replica_reset"
