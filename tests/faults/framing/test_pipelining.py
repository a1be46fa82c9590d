"""Pipelined requests: served in order, one at a time, and limited."""

import asyncio

from router.core.errors import Reason
from tests.harness.behaviours import echo, hang, stream_then_hang
from tests.harness.messages import chat, json_response, request, role, token
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, routed, running, scenario


@scenario
async def test_a_thousand_are_served_in_order_one_in_flight() -> None:
    count = 1000
    most = 0

    async def watched(connection: ReplicaConnection) -> None:
        nonlocal most
        while asked := await connection.recv_request():
            most = max(most, router.app.census()["leases"])
            await connection.send(json_response({"target": asked.target}))

    async with running(watched) as router:
        client = await router.client()
        sending = asyncio.create_task(
            client.send(*(request(f"/{index}") for index in range(count)))
        )
        for index in range(count):
            assert (await client.recv_response()).json()["target"] == f"/{index}"
        await sending
        assert most == 1
        assert len(await router.log(count)) == count


@routed(hang)
async def test_early_bytes_are_capped(router: Router) -> None:
    client = await router.send(request("/first"))
    await router.replica.wait_for_requests(1)
    await client.send_pieces(
        [b"POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n"]
    )
    await client.send_pieces([b"x" * 1000] * 900)
    await client.expect_close()
    await router.quiet()
    assert len(router.replica.requests) == 1
    assert (await router.log())[0]["reason"] in ("early_data", "client_gone")


@routed(echo)
async def test_what_follows_connection_close_is_ignored(router: Router) -> None:
    client = await router.send(request("/last", "Connection: close"), request("/ignored"))
    answer = await client.recv_response()
    assert answer.json()["target"] == "/last"
    assert answer.header("connection") == "close"
    await client.expect_close()
    assert not client.unread
    assert len(router.replica.requests) == 1


@routed(echo)
async def test_what_follows_a_refusal_is_ignored(router: Router) -> None:
    client = await router.send(b"GET / HTTP/1.1\r\n\r\n", request("/ignored"))
    assert_error(await client.recv_response(), Reason.BAD_HOST)
    await client.expect_close()
    assert not client.unread
    assert not router.replica.requests


@routed(stream_then_hang(role(), token("a")))
async def test_a_second_request_during_a_stream_and_then_a_reset(router: Router) -> None:
    client = await router.send(chat(stream=True))
    await client.recv_until(b'"a"')
    await client.send(request("/second"))
    client.rst()
    (connection,) = router.replica.sessions
    await eventually(lambda: connection.ended is not None, "the replica's connection closed")
    await router.quiet()
    assert len(router.replica.requests) == 1
    assert await router.reason() == "client_gone"


@scenario
async def test_answers_of_the_routers_own_wait_for_a_reader() -> None:
    """A thousand requests fit into one read, and each answer is many times as long as its request.

    More requests would end the connection: bytes sent ahead are limited.
    """
    models = [f"model-{number}" for number in range(200)]
    async with running(echo, replica={"models": models}) as router:
        client = await router.client(receive_buffer=4096)
        await client.send(request("/v1/models"))
        answer = await client.recv_response()
        assert len(answer.json()["data"]) == len(models)
        sending = asyncio.create_task(client.send(*[request("/v1/models")] * 1000))
        limit = 2 * router.app.parts.front.limits.write_high
        most = 0
        for _ in range(200):
            await asyncio.sleep(0.005)
            (one,) = router.app.parts.front.clients
            most = max(most, one.transport.get_write_buffer_size())
        assert 0 < most <= limit
        sending.cancel()


@routed(echo)
async def test_answers_of_the_routers_own_take_turns(router: Router) -> None:
    """Thousands of requests fit into one read: answering all in one loop turn would delay other
    clients.
    """
    first, second = await router.client(), await router.client()
    loop = asyncio.get_running_loop()
    counts = router.app.parts.metrics.kinds["other"]
    before = most = 0
    counted: asyncio.Handle | None = None

    def count() -> None:
        nonlocal before, most, counted
        now = sum(counts.ends.values())
        before, most = now, max(most, now - before)
        counted = loop.call_soon(count)

    count()
    asked = b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"
    await asyncio.gather(first.send(asked * 300), second.send(asked * 300))
    for _ in range(300):
        assert (await first.recv_response()).status == 200
        assert (await second.recv_response()).status == 200
    assert counted is not None
    counted.cancel()
    assert sum(counts.ends.values()) == 600
    assert 1 <= most <= 4  # one answer per connection; the count may see two turns
