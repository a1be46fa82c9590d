"""Large bodies are forwarded completely, held once, and do not delay other streams."""

import asyncio
import hashlib

import pytest

from tests.harness.behaviours import answer_by, sse_tokens
from tests.harness.messages import SSE_HEAD, chat, chunk, completion, post_json, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import Router, routed, running, scenario

MB = 1024 * 1024


def body_of(size: int) -> bytes:
    return b'{"model": "m", "messages": [{"role": "user", "content": "' + b"x" * size + b'"}]}'


def digest_of(body: bytes) -> str:
    """Digest up to the end of the messages: the router may add a priority after them."""
    return hashlib.sha256(body.rpartition(b"]")[0]).hexdigest()


digest = answer_by(lambda asked: completion(f"X-Digest: {digest_of(bytes(asked.body))}"))


@pytest.mark.parametrize("size", [1 * MB, 10 * MB, 40 * MB])
@scenario
async def test_they_come_whole(size: int) -> None:
    body = body_of(size)
    async with running(digest) as router:
        answer = await router.ask(post_json("/v1/chat/completions", body))
        assert answer.status == 200
        assert answer.header("x-digest") == digest_of(body)
        assert router.app.census()["held_bytes"] == 0


@routed(digest)
async def test_the_model_of_a_large_body_is_found(router: Router) -> None:
    """A body over 8 MB is scanned up to a limit, or a header names its model."""
    answer = await router.ask(post_json("/v1/chat/completions", body_of(10 * MB)))
    assert answer.status == 200
    assert (await router.log())[0]["model"] == "m"


@scenario
async def test_other_streams_go_on() -> None:
    upload = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if len(asked.body) > MB:
                await connection.send(completion())
                continue
            await connection.send(SSE_HEAD)
            while not upload.is_set():
                await connection.send(chunk(token("tick")))
                await asyncio.sleep(0.005)
            await connection.send(chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n")

    async with running(behave) as router:
        stream = await router.send(chat(stream=True))
        await stream.recv_until(b"tick")
        before = len(stream.received)
        uploading = asyncio.create_task(
            router.ask(post_json("/v1/chat/completions", body_of(20 * MB)))
        )
        ticks = 0
        while not uploading.done():
            assert await stream.fill()
            ticks += 1
        assert (await uploading).status == 200
        assert ticks > 3
        assert len(stream.received) > before
        upload.set()
        assert (await stream.recv_response()).complete


@scenario
async def test_too_many_body_bytes_at_once_is_an_error_of_the_router() -> None:
    limits = {"bodies_total": 4 * MB}
    async with running(sse_tokens(1), limits=limits) as router:
        clients = [await router.client() for _ in range(4)]
        whole = post_json("/v1/chat/completions", body_of(2 * MB))
        for client in clients:
            await client.send_pieces([whole[:-1]])
        for client in clients:
            await client.send_pieces([whole[-1:]])
        statuses = [(await client.recv_response()).status for client in clients]
        assert set(statuses) <= {200, 503}
        assert 503 in statuses
        reasons = {line["reason"] for line in await router.log(4)}
        assert reasons <= {"ok", "memory_limit"}
