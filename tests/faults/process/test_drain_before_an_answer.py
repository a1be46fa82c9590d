"""SIGTERM while a request has no answer yet: it gets one, or 503 and a close, within the grace
period.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

import pytest

from router.core.errors import Reason
from tests.faults.process.test_drain import refused
from tests.harness.behaviours import hang, json_ok
from tests.harness.client import RawClient
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    completion,
    request,
    role,
    token,
)
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection
from tests.harness.running import assert_error, assert_error_event, scenario

LONG = "drain: {lame_duck: 0, grace: 60}\n"
SHORT = "drain: {lame_duck: 0, grace: 0.2}\n"
PATIENT = "timeouts: {connect: 60, first_token: 60}\n"


def replica(behave: Behaviour) -> HostileReplica:
    made = HostileReplica(behave)
    made.start()
    return made


@contextmanager
def blackholed(made: HostileReplica) -> Iterator[None]:
    """From now on the replica's backlog is full: connects hang, as behind a firewall."""
    assert made._accepting is not None
    assert made._listener is not None
    made._accepting.cancel()
    made._listener.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", made.port))
        fillers.append(filler)
    try:
        yield
    finally:
        for filler in fillers:
            filler.close()


@asynccontextmanager
async def asked(router: RouterProcess, *requests: bytes) -> AsyncIterator[list[RawClient]]:
    """Clients whose requests have reached the router, because a later request was already
    answered.
    """
    clients = []
    try:
        for data in requests:
            clients.append(await router.client())
            await clients[-1].send(data)
        clients.append(await router.client())
        await clients[-1].send(request("/metrics", "Connection: close"))
        assert (await clients[-1].recv_response()).status == 404
        yield clients[:-1]
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@scenario
async def test_its_first_token_comes_in_time(tmp_path: Path, stream: bool) -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        if stream:
            await connection.send(SSE_HEAD, chunk(role()))
        await go.wait()
        if stream:
            await connection.send(chunk(token("a")), chunk(DONE), LAST_CHUNK)
        else:
            await connection.send(completion())
        await connection.recv_request()

    engine = replica(behave)
    write_config(tmp_path / "config.yaml", engine.url, extra=LONG)
    try:
        async with (
            serving(tmp_path / "config.yaml") as router,
            asked(router, chat(stream=stream)) as (client,),
        ):
            await engine.wait_for_requests(1)
            router.signal(signal.SIGTERM)
            await refused(router)
            go.set()
            answer = await client.recv_response()
            assert (answer.status, answer.complete) == (200, True)
            assert answer.header("connection") == "close"
            await client.expect_silence_then_close()
            assert await router.exit_status() == 0
    finally:
        await engine.stop()
    assert not engine.failures


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@scenario
async def test_its_first_token_never_comes(tmp_path: Path, stream: bool) -> None:
    engine = replica(hang)
    write_config(tmp_path / "config.yaml", engine.url, extra=SHORT + PATIENT)
    try:
        async with (
            serving(tmp_path / "config.yaml") as router,
            asked(router, chat(stream=stream)) as (client,),
        ):
            await engine.wait_for_requests(1)
            router.signal(signal.SIGTERM)
            answer = await client.recv_response()
            assert_error(answer, Reason.DRAINING, 503)
            assert answer.header("retry-after")
            assert answer.header("connection") == "close"
            await client.expect_silence_then_close()
            assert await router.exit_status() == 0
    finally:
        await engine.stop()


@scenario
async def test_it_has_its_200_and_comments_only(tmp_path: Path) -> None:
    engine = replica(hang)
    extra = SHORT + "timeouts: {commit_after: 0.1, first_token: 60}\n"
    write_config(tmp_path / "config.yaml", engine.url, extra=extra)
    try:
        async with (
            serving(tmp_path / "config.yaml") as router,
            asked(router, chat(stream=True)) as (client,),
        ):
            while b": waiting" not in client.unread:
                assert await client.fill()
            router.signal(signal.SIGTERM)
            answer = await client.recv_response()
            assert_error_event(answer, Reason.DRAINING)
            await client.expect_close()
            assert await router.exit_status() == 0
    finally:
        await engine.stop()


@scenario
async def test_its_connect_is_refused_in_time(tmp_path: Path) -> None:
    """Connecting and retrying continue after the signal."""
    dark, light = replica(hang), replica(json_ok)
    extra = LONG + "timeouts: {connect: 0.5}\nrouting: {policy: round_robin}\n"
    write_config(tmp_path / "config.yaml", dark.url, light.url, extra=extra)
    try:
        async with serving(tmp_path / "config.yaml") as router:
            with blackholed(dark):
                async with asked(router, chat(), chat()) as clients:
                    router.signal(signal.SIGTERM)
                    for client in clients:
                        assert (await client.recv_response()).status == 200
                    assert await router.exit_status() == 0
            assert len(light.requests) == 2
    finally:
        await dark.stop()
        await light.stop()


@scenario
async def test_its_connect_never_ends(tmp_path: Path) -> None:
    dark = replica(hang)
    write_config(tmp_path / "config.yaml", dark.url, extra=SHORT + PATIENT)
    try:
        async with serving(tmp_path / "config.yaml") as router:
            with blackholed(dark):
                async with asked(router, chat(), chat(stream=True)) as clients:
                    router.signal(signal.SIGTERM)
                    for client in clients:
                        answer = await client.recv_response()
                        assert_error(answer, Reason.DRAINING, 503)
                        assert answer.header("connection") == "close"
                        await client.expect_silence_then_close()
                    assert await router.exit_status() == 0
    finally:
        await dark.stop()


@pytest.mark.parametrize("where", ["connecting", "first token"])
@scenario
async def test_a_second_signal_does_not_wait(tmp_path: Path, where: str) -> None:
    engine = replica(hang)
    extra = "drain: {lame_duck: 60, grace: 600}\n" + PATIENT
    write_config(tmp_path / "config.yaml", engine.url, extra=extra)
    try:
        async with serving(tmp_path / "config.yaml") as router:
            with blackholed(engine) if where == "connecting" else nullcontext():
                async with asked(router, chat()) as (client,):
                    if where != "connecting":
                        await engine.wait_for_requests(1)
                    router.signal(signal.SIGTERM)
                    await router.next_event("draining")
                    assert client.ended is None
                    router.signal(signal.SIGTERM)
                    assert_error(await client.recv_response(), Reason.DRAINING, 503)
                    assert await router.exit_status() == 0
    finally:
        await engine.stop()
