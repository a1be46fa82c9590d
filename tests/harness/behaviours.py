"""Behaviours of a replica on a connection: correct ones, and common failures."""

import asyncio
import json
from collections.abc import Callable

from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chunk,
    completion,
    json_response,
    role,
    token,
)
from tests.harness.reading import Request
from tests.harness.replica import Behaviour, ReplicaConnection


async def json_ok(connection: ReplicaConnection) -> None:
    """Answer every request with a whole completion and keep the connection."""
    while await connection.recv_request():
        await connection.send(completion())


async def echo(connection: ReplicaConnection) -> None:
    """Answer every request with the parsed request."""
    while request := await connection.recv_request():
        if request.method == "HEAD":
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        else:
            await connection.send(json_response(echo_of(request)))


def echo_of(request: Request) -> dict[str, object]:
    return {
        "method": request.method,
        "target": request.target,
        "body": bytes(request.body).decode("latin-1"),
    }


def sse_tokens(count: int = 3, *, done: bool = True) -> Behaviour:
    """Stream a role, `count` tokens and [DONE], complete, for every request."""

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD, chunk(role()))
            for index in range(count):
                await connection.send(chunk(token(f"t{index}")))
                await asyncio.sleep(0)
            await connection.send(chunk(DONE) if done else b"", LAST_CHUNK)

    return behave


async def chat_either(connection: ReplicaConnection) -> None:
    """A small engine: streams if requested, else answers as a whole."""
    while request := await connection.recv_request():
        wants = bytes(request.body)
        if wants and json.loads(wants).get("stream"):
            await connection.send(
                SSE_HEAD, chunk(role()), chunk(token("t0")), chunk(DONE), LAST_CHUNK
            )
        else:
            await connection.send(completion())


async def hang(connection: ReplicaConnection) -> None:
    """Read the request and never answer."""
    while await connection.recv_request():
        pass


def stream_then_hang(*events: bytes) -> Behaviour:
    """Open a stream, send these events and stay silent."""

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, *(chunk(event) for event in events))
        await until_closed(connection)

    return behave


def answer(*data: bytes) -> Behaviour:
    """Answer every request with these bytes and keep the connection."""

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(*data)

    return behave


def answer_by(make: Callable[[Request], bytes]) -> Behaviour:
    """Answer every request with the bytes that `make` returns for it."""

    async def behave(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            await connection.send(make(request))

    return behave


def answer_after(wait: asyncio.Event | float, *data: bytes) -> Behaviour:
    """Answer every request with these bytes, each after an event or a number of seconds."""

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await (asyncio.sleep(wait) if isinstance(wait, float) else wait.wait())
            await connection.send(*data)

    return behave


def answer_then_fin(data: bytes) -> Behaviour:
    """Answer one request with these bytes, then end our side of the connection."""

    async def behave(connection: ReplicaConnection) -> None:
        if await connection.recv_request():
            await connection.send(data)
            connection.fin()
            await until_closed(connection)

    return behave


def stream_then_rst(go: asyncio.Event, *events: bytes) -> Behaviour:
    """Stream these events and reset the connection when `go` is set."""

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, *(chunk(event) for event in events))
        await go.wait()
        connection.rst()

    return behave


def stream_then_fin(go: asyncio.Event, *events: bytes, raw: bytes = b"") -> Behaviour:
    """Stream these events and `raw` bytes, and end the connection when `go` is set."""

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(SSE_HEAD, *(chunk(event) for event in events), raw)
        await go.wait()
        connection.close()

    return behave


async def rst_unread(connection: ReplicaConnection) -> None:
    """Reset before the request is read."""
    connection.rst()


async def rst_after_request(connection: ReplicaConnection) -> None:
    """Read the whole request, then reset."""
    await connection.recv_request()
    connection.rst()


async def fin_after_request(connection: ReplicaConnection) -> None:
    """Read the whole request, then close without a byte."""
    await connection.recv_request()
    connection.close()


async def until_closed(connection: ReplicaConnection) -> None:
    """Read and drop until the router ends the connection, without a time limit."""
    while connection.ended is None and await connection._fill_forever():
        pass


async def until_told(connection: ReplicaConnection, go: asyncio.Event) -> None:
    """Wait until `go` is set, or the router ends the connection."""
    ends = {asyncio.create_task(until_closed(connection)), asyncio.create_task(go.wait())}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in ends:
        task.cancel()
    await asyncio.wait(ends)


def in_turn(*behaviours: Behaviour, then: Behaviour) -> Behaviour:
    """One behaviour per connection, in this order over all replicas; then `then`."""
    waiting = list(behaviours)

    async def behave(connection: ReplicaConnection) -> None:
        await (waiting.pop(0) if waiting else then)(connection)

    return behave
