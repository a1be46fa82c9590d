"""Signals before, during and after a restart, to the old and to the new process."""

import asyncio
import os
import signal
from pathlib import Path

from tests.faults.restart.helpers import Restarting, held, is_alive, restarting
from tests.harness.client import RawClient
from tests.harness.messages import chat
from tests.harness.process import START_S
from tests.harness.replica import eventually
from tests.harness.running import long_scenario


async def streaming(one: Restarting) -> RawClient:
    """A stream that has begun."""
    client = await one.router.client()
    await client.send(chat(stream=True))
    await client.recv_until(b'"a"')
    return client


async def whole(client: RawClient) -> bool:
    answer = await client.recv_response()
    client.close()
    return answer.complete


@long_scenario
async def test_a_second_signal_during_a_restart_is_refused(tmp_path: Path) -> None:
    async with restarting(tmp_path) as one:
        await one.hostile.stop_listening()  # the new process waits for the replica
        one.router.signal(signal.SIGUSR2)
        await one.begins()
        event = await one.router.restart()
        assert (event["message"], event["why"]) == ("restart refused", "a restart is in progress")
        one.hostile.start(one.hostile.port)
        event = await one.router.next_event("restarted", "restart failed")
        assert event["message"] == "restarted"
        one.router.pid = event["pid"]
        assert (await one.ask()).status == 200


@long_scenario
async def test_a_second_restart_while_the_first_process_still_drains(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with restarting(tmp_path, held(go)) as one:
        streams, pids = [], []
        for _ in range(3):
            streams.append(await streaming(one))
            pids.append(one.router.pid)
            assert (await one.router.restart())["message"] == "restarted"
        assert all(is_alive(pid) for pid in pids)
        os.kill(pids[0], signal.SIGUSR2)
        event = await one.router.next_event("restart refused")
        assert str(pids[1]) in event["why"]
        go.set()
        for stream in streams:
            assert await whole(stream)
        await eventually(
            lambda: not any(is_alive(pid) for pid in pids), "the old processes' end", START_S
        )
        assert await one.status("/readyz") == 200


@long_scenario
async def test_sigterm_to_the_old_process_before_the_new_one_serves(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with restarting(tmp_path, held(go)) as one:
        stream = await streaming(one)
        await one.hostile.stop_listening()  # the new process waits for the replica
        one.router.signal(signal.SIGUSR2)
        pid = (await one.begins())["pid"]
        one.router.signal(signal.SIGTERM)
        await eventually(lambda: not is_alive(pid), "the end of the new process", START_S)
        go.set()
        assert await whole(stream)
        assert await one.router.exit_status() == 0


@long_scenario
async def test_sigterm_to_the_new_process_drains_both(tmp_path: Path) -> None:
    """The new process ends last: the end of a main process would end all processes of a unit."""
    go = asyncio.Event()
    async with restarting(tmp_path, held(go)) as one:
        old = one.router.pid
        first = await streaming(one)
        await one.router.restart()
        second = await streaming(one)
        one.router.signal(signal.SIGTERM)
        await one.router.next_event("draining")
        await asyncio.sleep(0.2)
        assert is_alive(old)
        assert is_alive(one.router.pid)
        go.set()
        assert await whole(first)
        assert await whole(second)
        await eventually(
            lambda: not is_alive(one.router.pid), "the end of the new process", START_S
        )
        assert not is_alive(old)


@long_scenario
async def test_the_new_process_waits_for_the_old_ones_streams(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with restarting(tmp_path, held(go)) as one:
        old = one.router.pid
        stream = await streaming(one)
        await one.router.restart()
        one.router.signal(signal.SIGTERM)
        await one.router.next_event("draining")
        await one.router.next_event("drained")
        await asyncio.sleep(0.2)
        assert is_alive(one.router.pid)  # it has nothing to do, but the old process has
        one.router.signal(signal.SIGTERM)
        await eventually(lambda: not is_alive(one.router.pid), "the end at once", START_S)
        assert is_alive(old)
        go.set()
        assert await whole(stream)


@long_scenario
async def test_sigterm_to_the_old_process_that_drains_cuts_nothing(tmp_path: Path) -> None:
    """A stop with KillMode=control-group signals every process of a unit."""
    go = asyncio.Event()
    async with restarting(tmp_path, held(go)) as one:
        old = one.router.pid
        stream = await streaming(one)
        await one.router.restart()
        os.kill(old, signal.SIGTERM)
        await asyncio.sleep(0.2)
        assert is_alive(old)
        go.set()
        assert await whole(stream)
        stream = await streaming(one)
        assert await whole(stream)


@long_scenario
async def test_a_reload_during_a_restart_reaches_the_new_process(tmp_path: Path) -> None:
    async with restarting(tmp_path) as one:
        await one.hostile.stop_listening()  # the new process waits for the replica
        one.router.signal(signal.SIGUSR2)
        await one.router.next_event("starting")  # the new process has read its configuration
        one.write("routing: {policy: random}\n")
        one.router.signal(signal.SIGHUP)
        first = await one.router.next_event("reloaded")
        known = len(one.router.events)
        one.hostile.start(one.hostile.port)
        await one.router.event_after(known, "restarted")
        assert (await one.router.event_after(known, "reloaded"))["hash"] == first["hash"]


@long_scenario
async def test_a_signal_during_the_start_does_not_end_it(tmp_path: Path) -> None:
    async with restarting(tmp_path) as one:
        await one.hostile.stop_listening()  # the new process waits for the replica
        known = len(one.router.events)
        one.router.signal(signal.SIGUSR2)
        pid = (await one.begins())["pid"]
        await one.router.event_after(known, "starting")
        for number in (signal.SIGHUP, signal.SIGUSR2):
            os.kill(pid, number)
        one.hostile.start(one.hostile.port)
        assert (await one.router.next_event("restarted", "restart failed"))["pid"] == pid
