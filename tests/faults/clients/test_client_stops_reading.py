"""A client that stops reading delays only its own stream, and only for a limited time."""

import asyncio

from router.core.errors import Reason
from tests.harness.behaviours import hang, until_closed
from tests.harness.messages import SSE_HEAD, chat, chunk, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import Router, assert_error, routed, running, scenario

PIECE = chunk(token("x" * 16_000))
HELD = 512 * 1024  # bytes per stream, for any amount sent by the replica
KERNEL = 16 * 1024 * 1024  # capacity of loopback's socket buffers, in bytes


def unwritten(router: Router) -> int:
    """Bytes of answers that wait in the router for their clients."""
    clients = router.app.parts.front.clients
    return sum(client.transport.get_write_buffer_size() for client in clients)


class Flood:
    """A replica that streams as fast as it is read, and counts the sent bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.sent = 0

    async def __call__(self, connection: ReplicaConnection) -> None:
        asked = await connection.recv_request()
        assert asked is not None
        await connection.send(SSE_HEAD)
        if b"quick" in asked.body:
            for index in range(50):
                await connection.send(chunk(token(f"q{index}")))
                await asyncio.sleep(0.002)
            await connection.send(b"0\r\n\r\n")
            await until_closed(connection)
            return
        loop = asyncio.get_running_loop()
        while self.sent < self.limit:
            await loop.sock_sendall(connection.sock, PIECE)
            self.sent += len(PIECE)
        await until_closed(connection)


@scenario
async def test_memory_is_bounded_and_the_write_stall_timeout_ends_it() -> None:
    flood = Flood(1 << 30)
    async with running(flood, timeouts={"write_stall_s": 0.5, "token_gap_s": 60.0}) as router:
        client = await router.client(receive_buffer=4096)
        await client.send(chat(stream=True))
        await client.recv_until(b"xxx")
        most = 0
        while router.busy():
            most = max(most, unwritten(router))
            await asyncio.sleep(0.005)
        assert 0 < most <= HELD
        assert flood.sent <= KERNEL
        assert await router.reason() == "write_timeout"


@scenario
async def test_many_slow_readers_do_not_delay_other_streams() -> None:
    count = 50
    flood = Flood(1 << 30)
    async with running(flood, timeouts={"write_stall_s": 60.0}) as router:
        for _ in range(count):  # one by one: an idle client would run into its time for a head
            client = await router.client(receive_buffer=4096)
            await client.send(chat(stream=True))
            await client.recv_until(b"xxx")
        answer = await router.ask(chat(stream=True, user="quick"))
        assert answer.complete
        assert len(answer.events()) == 50
        assert 0 < unwritten(router) <= count * HELD


@scenario
async def test_a_slow_steady_reader_is_never_killed() -> None:
    """In total, the client takes far longer than the stall limit, but never that long for one
    read.
    """
    flood = Flood(16_000_000)

    async def ends(connection: ReplicaConnection) -> None:
        asked = await connection.recv_request()
        assert asked is not None
        await connection.send(SSE_HEAD)
        loop = asyncio.get_running_loop()
        while flood.sent < flood.limit:
            await loop.sock_sendall(connection.sock, PIECE)
            flood.sent += len(PIECE)
        await loop.sock_sendall(connection.sock, b"0\r\n\r\n")
        await until_closed(connection)

    async with running(ends, timeouts={"write_stall_s": 1.0, "token_gap_s": 1.0}) as router:
        # With smaller buffers or slower reads, the kernel's own buffers cause pauses of half a
        # second.
        client = await router.client(receive_buffer=128 * 1024)
        await client.send(chat(stream=True))
        started = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - started < 2.0:
            assert await client.fill(262_144)
            await asyncio.sleep(0.03)
        answer = await client.recv_response()
        assert answer.complete
        assert await router.reason() == "ok"


@scenario
async def test_backpressure_reaches_the_replica() -> None:
    flood = Flood(1 << 30)
    async with running(flood) as router:
        client = await router.client(receive_buffer=4096)
        await client.send(chat(stream=True))
        await client.recv_until(b"xxx")
        before = -1
        while before != flood.sent:  # until the replica's writes block
            before = flood.sent
            await asyncio.sleep(0.15)
        assert flood.sent <= KERNEL
        while flood.sent == before:  # the replica's writes continue as soon as the client reads
            assert await client.fill()


@routed(hang)
async def test_a_break_before_any_content_moves_no_deadline_of_the_client(router: Router) -> None:
    client = await router.send(chat("x-request-timeout-ms: 600", stream=True))
    await router.replica.wait_for_requests(1)
    (exchange,) = router.app.parts.dispatcher.exchanges
    exchange.client_paused()
    exchange.client_resumed()
    assert exchange.deadlines.next_check <= exchange.deadlines.client_deadline
    assert_error(await client.recv_response(), Reason.DEADLINE_PASSED, 408)


@routed(hang, timeouts={"write_stall_s": 60.0})
async def test_a_deadline_that_passes_in_a_break_ends_the_request_after_it(router: Router) -> None:
    client = await router.send(chat("x-request-timeout-ms: 200", stream=True))
    await router.replica.wait_for_requests(1)
    (exchange,) = router.app.parts.dispatcher.exchanges
    exchange.client_paused()
    # Past the request's deadline: no event shows that nothing ended the request.
    await asyncio.sleep(0.5)
    assert router.busy()
    exchange.client_resumed()
    assert_error(await client.recv_response(), Reason.DEADLINE_PASSED, 408)
