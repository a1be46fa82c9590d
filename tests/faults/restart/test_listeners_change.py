"""A restart with other addresses in the configuration, and the probes' port during a restart."""

import asyncio
from pathlib import Path

import pytest

from tests.faults.restart.helpers import Restarting, held, restarting
from tests.harness.client import RawClient
from tests.harness.messages import chat
from tests.harness.ports import free_port
from tests.harness.running import long_scenario


def change(one: Restarting, old: str, new: str) -> None:
    text = one.config.read_text()
    assert old in text
    one.config.write_text(text.replace(old, new))


async def listens(port: int) -> bool:
    try:
        client = await RawClient.connect(port)
    except OSError:
        return False
    client.close()
    return True


@long_scenario
async def test_a_new_data_port(tmp_path: Path) -> None:
    """The old port accepts for `drain.lame_duck`, so that load balancers can follow."""
    new = free_port()
    async with restarting(tmp_path) as one:
        old = one.router.port
        change(one, "listen: 127.0.0.1:0", f"listen: 127.0.0.1:{new}")
        await one.router.restart()
        await one.router.next_event("drained")
        assert not await listens(old)
        one.router.port = new
        assert (await one.ask()).status == 200


@long_scenario
async def test_the_old_data_port_serves_during_the_lame_duck(tmp_path: Path) -> None:
    new = free_port()
    async with restarting(tmp_path) as one:
        change(one, "lame_duck: 0", "lame_duck: 30")
        assert (await one.router.restart())["message"] == "restarted"
        change(one, "listen: 127.0.0.1:0", f"listen: 127.0.0.1:{new}")
        await one.router.restart()
        assert (await one.ask()).status == 200
        one.router.port = new
        assert (await one.ask()).status == 200


@long_scenario
async def test_several_data_addresses_change_hands(tmp_path: Path) -> None:
    """IPv4 and IPv6 at once; an address that is added, and one that vanishes."""
    both, added = free_port(), free_port()
    async with restarting(tmp_path) as one:

        async def answers(host: str, port: int) -> bool:
            try:
                reader, writer = await asyncio.open_connection(host, port)
            except OSError:
                return False
            writer.write(chat("Connection: close"))
            found = await reader.read()
            writer.close()
            return found.startswith(b"HTTP/1.1 200 ")

        change(one, "listen: 127.0.0.1:0", f"listen: ['127.0.0.1:{both}', '[::1]:{both}']")
        for _ in range(2):
            assert (await one.router.restart())["message"] == "restarted"
            assert await answers("127.0.0.1", both)
            assert await answers("::1", both)
        change(one, f"'127.0.0.1:{both}', ", f"'127.0.0.1:{added}', ")
        assert (await one.router.restart())["message"] == "restarted"
        assert await answers("127.0.0.1", added)
        assert await answers("::1", both)
        while await answers("127.0.0.1", both):
            await asyncio.sleep(0.02)
        one.router.port = added


@long_scenario
async def test_addresses_that_two_listeners_exchange(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    async with restarting(tmp_path) as one:
        change(one, "admin: 127.0.0.1:0", f"admin: 127.0.0.1:{first}")
        change(one, "listen: 127.0.0.1:0", f"listen: 127.0.0.1:{second}")
        assert (await one.router.restart())["message"] == "restarted"
        change(one, f"admin: 127.0.0.1:{first}", f"admin: 127.0.0.1:{second}")
        change(one, f"listen: 127.0.0.1:{second}", f"listen: 127.0.0.1:{first}")
        assert (await one.router.restart())["message"] == "restarted"
        one.router.port, one.router.admin_port = first, second
        # The old process may still accept a connection on its old admin port, and returns 404.
        for _ in range(100):
            status = (await one.ask()).status
            if status == 200:
                break
            assert status == 404
            await asyncio.sleep(0.05)
        assert status == 200
        assert await one.status("/readyz") == 200


@long_scenario
async def test_a_probes_port_that_appears_and_vanishes(tmp_path: Path) -> None:
    port = free_port()
    plain = "admin: 127.0.0.1:0"
    async with restarting(tmp_path) as one:
        with_probes = f"admin: {{listen: 127.0.0.1:0, probes_listen: 127.0.0.1:{port}}}"
        change(one, plain, with_probes)
        await one.router.restart()
        assert await one.status("/readyz", port) == 200
        await one.router.restart()
        assert await one.status("/readyz", port) == 200
        change(one, with_probes, plain)
        await one.router.restart()
        while await listens(port):
            await asyncio.sleep(0.02)


@long_scenario
async def test_the_router_is_ready_all_the_time(tmp_path: Path) -> None:
    """Probes never see the old process that drains, also over a connection that they keep."""
    go = asyncio.Event()
    async with restarting(tmp_path, held(go)) as one:
        stream = await one.router.client()
        await stream.send(chat(stream=True))
        await stream.recv_until(b'"a"')
        statuses: list[int] = []

        async def probe() -> None:
            while True:
                statuses.append(await one.status("/readyz"))
                await asyncio.sleep(0.01)

        probing = asyncio.create_task(probe())
        for _ in range(2):
            await one.router.restart()
            await asyncio.sleep(0.3)
        probing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probing
        assert set(statuses) == {200}
        go.set()
        assert (await stream.recv_response()).complete
        stream.close()
