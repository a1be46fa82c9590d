"""Two routers and a real server of Redis: they know each other's load, and never wait for it."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.addons.share.app.servers import PASSWORD, Store, answers_a_part
from tests.faults.process.metrics import number
from tests.harness import kit
from tests.harness.running import long_scenario

WITHIN_S = 10.0


class Pair:
    """Two routers in front of one replica."""

    def __init__(self, store: Store, routers: list[kit.RouterProcess]) -> None:
        self.store = store
        self.one, self.other = routers

    async def begin_stream(self, router: kit.RouterProcess) -> kit.RawClient:
        client = await router.client()
        await client.send(kit.chat(stream=True))
        await client.recv_until(b'"t"')
        return client

    async def serve(self, count: int = 20) -> None:
        """Both routers answer requests at once."""
        for router in (self.one, self.other):
            client = await router.client()
            async with asyncio.timeout(WITHIN_S):  # 20 s, if each waited for the server
                for _ in range(count):
                    await client.send(kit.chat())
                    assert (await client.recv_response()).status == 200
            client.close()

    async def connected(self, expected: float) -> None:
        for router in (self.one, self.other):
            await until(
                lambda port=router.admin_port: number(port, "hedgerow_share_connected"),
                expected,
            )


async def load(router: kit.RouterProcess) -> float:
    (found,) = await replicas(router)
    return float(found["load"])


async def replicas(router: kit.RouterProcess) -> list[dict[str, Any]]:
    client = await router.client(admin=True)
    await client.send(kit.request("/replicas"))
    response = await client.recv_response()
    client.close()
    found: list[dict[str, Any]] = json.loads(response.body)
    return found


async def until(read: Any, expected: float) -> None:
    found = None
    try:
        async with asyncio.timeout(WITHIN_S):
            while (found := await read()) != expected:
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{found} instead of {expected}") from None


@asynccontextmanager
async def pair(folder: Path, password: str = PASSWORD, *, extra: str = "") -> AsyncIterator[Pair]:
    store = Store()
    try:
        async with AsyncExitStack() as stack:
            engine = kit.HostileReplica(answers_a_part)
            await stack.enter_async_context(engine)
            routers = []
            for name in ("one", "other"):
                config = folder / f"{name}.yaml"
                share = f"share: {{url: '{store.url(password)}'}}\naccess_log: {{path: ''}}\n"
                kit.write_config(config, engine.url, extra=share + extra)
                routers.append(await stack.enter_async_context(kit.serving(config)))
            yield Pair(store, routers)
    finally:
        store.close()


@long_scenario
async def test_each_router_knows_the_load_of_the_other(tmp_path: Path) -> None:
    async with pair(tmp_path) as routers:
        await routers.connected(1.0)
        client = await routers.begin_stream(routers.one)
        await until(lambda: load(routers.other), 1.0)
        second = await routers.begin_stream(routers.one)
        await until(lambda: load(routers.other), 2.0)
        client.close()
        await until(lambda: load(routers.other), 1.0)
        routers.one.kill()
        await until(lambda: load(routers.other), 0.0)
        second.close()
        assert await number(routers.other.admin_port, "hedgerow_share_routers") == 0.0


@pytest.mark.parametrize("fault", ["killed", "frozen"])
@long_scenario
async def test_a_server_that_is_away_delays_nothing_and_is_found_again(
    fault: str, tmp_path: Path
) -> None:
    async with pair(tmp_path) as routers:
        await routers.connected(1.0)
        first = await routers.begin_stream(routers.one)
        await until(lambda: load(routers.other), 1.0)
        if fault == "killed":
            routers.store.kill()
        else:
            routers.store.signal(signal.SIGSTOP)
        await routers.serve()
        await routers.connected(0.0)
        await routers.serve()
        event = await routers.one.next_event("other routers are not reached")
        assert PASSWORD not in str(event)
        await until(lambda: load(routers.other), 0.0)
        client = await routers.begin_stream(routers.one)
        assert await load(routers.other) == 0.0
        if fault == "killed":
            routers.store.start()
        else:
            routers.store.signal(signal.SIGCONT)
        await routers.connected(1.0)
        await routers.one.next_event("other routers are reached again")
        await until(lambda: load(routers.other), 2.0)
        client.close()
        first.close()


@long_scenario
async def test_garbage_is_ignored_and_counted(tmp_path: Path) -> None:
    async with pair(tmp_path) as routers:
        await routers.connected(1.0)
        (channel,) = routers.store.client.pubsub_channels()
        for data in (b"", b"garbage", b"\xdc\xff\xff" * 1000, b"\x96\x01\xa1x", b"x" * 1_000_000):
            routers.store.client.publish(channel, data)
        for router in (routers.one, routers.other):
            await until(
                lambda port=router.admin_port: number(port, "hedgerow_share_ignored_total"), 5.0
            )
        await routers.serve()
        client = await routers.begin_stream(routers.one)
        await until(lambda: load(routers.other), 1.0)
        client.close()


@long_scenario
async def test_a_wrong_password_is_an_event(tmp_path: Path) -> None:
    async with pair(tmp_path, "wrong-one") as routers:
        await routers.serve()
        event = await routers.one.next_event("other routers are not reached")
        assert "wrong-one" not in str(event)
