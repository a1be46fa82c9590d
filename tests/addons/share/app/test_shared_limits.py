"""Two routers and a real server of Redis: the limits of a key count once."""

import asyncio
import time
from pathlib import Path
from typing import Any

from router.config.keys import KeyLine, hash_of, line_of
from tests.addons.share.app.test_store import pair, until
from tests.faults.process.metrics import number
from tests.harness import kit
from tests.harness.running import long_scenario

AUTHORIZED = "Authorization: Bearer acme-key"
PAUSE_S = 0.01  # between two requests to one router
# The other router grants about three requests in one interval of 20 ms and a little delay.
EXCESS = 8


def keys(folder: Path, **limits: Any) -> str:
    """The setting of a keys file with one key."""
    path = folder / "keys.jsonl"
    path.write_text(line_of(KeyLine(name="acme", hash=hash_of(b"acme-key"), **limits)) + "\n")
    return f"keys: {{file: '{path}'}}\n"


async def ask(router: kit.RouterProcess, count: int) -> int:
    """Send requests, and return how many were granted."""
    client = await router.client()
    granted = 0
    for _ in range(count):
        await client.send(kit.chat(AUTHORIZED))
        status = (await client.recv_response()).status
        assert status in (200, 429)
        granted += status == 200
        await asyncio.sleep(PAUSE_S)
    client.close()
    return granted


async def reads(router: kit.RouterProcess, expected: float, name: str, **labels: str) -> None:
    """Wait until a metric of a router has this value."""
    await until(lambda: number(router.admin_port, name, **labels), expected)


async def stream(router: kit.RouterProcess) -> kit.RawClient:
    client = await router.client()
    await client.send(kit.chat(AUTHORIZED, stream=True))
    return client


@long_scenario
async def test_a_limit_of_requests_is_granted_once(tmp_path: Path) -> None:
    extra = keys(tmp_path, requests_per_minute=60)
    async with pair(tmp_path, extra=extra) as routers:
        await routers.connected(1.0)
        for router in (routers.one, routers.other):
            await reads(router, 1.0, "hedgerow_share_routers")
        began = time.monotonic()
        found = await asyncio.gather(ask(routers.one, 90), ask(routers.other, 90))
        refilled = time.monotonic() - began
        assert 57 <= sum(found) <= 60 + refilled + EXCESS
        assert min(found) > 0


@long_scenario
async def test_running_requests_count_at_both_and_a_free_slot_is_used_by_either(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, extra=keys(tmp_path, concurrency=1)) as routers:
        await routers.connected(1.0)
        first = await stream(routers.one)
        await first.recv_until(b'"t"')
        await asyncio.sleep(0.3)
        second = await stream(routers.other)
        await reads(routers.other, 1.0, "hedgerow_queue_depth", **{"class": "normal"})
        first.close()
        await second.recv_until(b'"t"')
        second.close()


@long_scenario
async def test_without_the_server_each_router_grants_its_part(tmp_path: Path) -> None:
    extra = keys(tmp_path, requests_per_minute=60)
    async with pair(tmp_path, extra=extra) as routers:
        for router in (routers.one, routers.other):
            await reads(router, 1.0, "hedgerow_share_routers")
        routers.store.kill()
        for router in (routers.one, routers.other):
            await reads(router, 2.0, "hedgerow_share_limit_parts")
        began = time.monotonic()
        found = await asyncio.gather(ask(routers.one, 50), ask(routers.other, 50))
        refilled = time.monotonic() - began
        assert all(30 <= each <= 30 + refilled / 2 + 1 for each in found)
        routers.store.start()
        for router in (routers.one, routers.other):
            await reads(router, 1.0, "hedgerow_share_limit_parts")
