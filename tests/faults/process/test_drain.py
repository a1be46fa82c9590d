"""SIGTERM: running requests are not cut within the grace period; a second SIGTERM cuts them."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, request, token
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import scenario

STREAMS = 100


def held(go: asyncio.Event) -> HostileReplica:
    """A replica whose streams end on a signal."""

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD, chunk(token("a")))
            await go.wait()
            await connection.send(chunk(token("b")), chunk(DONE), LAST_CHUNK)

    made = HostileReplica(behave)
    made.start()
    return made


@asynccontextmanager
async def draining(
    tmp_path: Path, hostile: HostileReplica, drain: str
) -> AsyncIterator[RouterProcess]:
    """A router process in front of `hostile`, with these drain settings."""
    config = tmp_path / "config.yaml"
    write_config(config, hostile.url, extra=f"drain: {{{drain}}}\n")
    try:
        async with serving(config) as router:
            yield router
    finally:
        await hostile.stop()


async def status_of(router: RouterProcess, path: str) -> int:
    client = await router.client(admin=True)
    await client.send(request(path))
    answer = await client.recv_response()
    client.close()
    return answer.status


@scenario
async def test_streams_finish_and_new_clients_are_turned_away(tmp_path: Path) -> None:
    go = asyncio.Event()
    hostile = held(go)
    async with draining(tmp_path, hostile, "lame_duck: 2, grace: 30") as router:
        assert await status_of(router, "/readyz") == 200
        clients = [await router.send(chat(stream=True)) for _ in range(STREAMS)]
        for client in clients:
            await client.recv_until(b'"a"')
        idle = await router.send(request("/nowhere/metrics"))
        idle.close()
        router.signal(signal.SIGTERM)
        assert (await router.next_event("draining"))["lame_duck_s"] == 2.0
        assert await status_of(router, "/readyz") == 503
        assert await status_of(router, "/livez") == 200
        late = await router.client()  # lame duck: the port still accepts
        late.close()
        await refused(router)
        go.set()
        for client in clients:
            answer = await client.recv_response()
            assert answer.complete
            assert answer.events()[-1] == "[DONE]"
            client.close()
        assert await router.exit_status() == 0


@scenario
async def test_after_the_grace_streams_end_with_an_error_event(tmp_path: Path) -> None:
    hostile = held(asyncio.Event())
    async with draining(tmp_path, hostile, "lame_duck: 0, grace: 0.3") as router:
        client = await router.send(chat(stream=True))
        await client.recv_until(b'"a"')
        router.signal(signal.SIGTERM)
        answer = await client.recv_response()
        assert not answer.complete
        assert b'"draining"' in answer.body
        assert b"[DONE]" not in answer.body
        assert await router.exit_status() == 0
        client.close()


@scenario
async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    hostile = held(asyncio.Event())
    async with draining(tmp_path, hostile, "lame_duck: 60, grace: 600") as router:
        client = await router.send(chat(stream=True))
        await client.recv_until(b'"a"')
        router.signal(signal.SIGTERM)
        await router.next_event("draining")
        router.signal(signal.SIGTERM)
        assert await router.exit_status() == 0
        assert not (await client.recv_response()).complete
        client.close()


async def refused(router: RouterProcess) -> None:
    """Wait until the data port no longer accepts."""
    while True:
        try:
            client = await router.client()
        except OSError:
            return
        client.close()
        await asyncio.sleep(0.02)
