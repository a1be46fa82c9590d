"""The event loop with a virtual clock: what makes it advance, and what stops it."""

import asyncio
import socket
import time

import pytest

from router.core import clock
from tests.harness.replica import eventually
from tests.harness.running import virtual_scenario
from tests.harness.virtual_time import TURN_S, run_virtual, takes

NEAR_S = 20 * TURN_S


@virtual_scenario
async def test_all_clocks_jump_to_the_next_timer() -> None:
    began, monotonic, wall = time.perf_counter(), clock.monotonic(), clock.time()
    with takes(3600.0, NEAR_S):
        await asyncio.gather(asyncio.sleep(3600.0), asyncio.sleep(1800.0))
    assert abs(clock.monotonic() - monotonic - 3600.0) < NEAR_S
    assert abs(clock.time() - wall - 3600.0) < NEAR_S
    assert time.perf_counter() - began < 1800.0


@virtual_scenario
async def test_bytes_come_before_a_timer() -> None:
    """A conversation of many turns takes no time, however short the timer is."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    other_reader, other_writer = await asyncio.open_connection(sock=theirs)
    try:
        async with asyncio.timeout(1000 * 10 * TURN_S):
            for _ in range(1000):
                writer.write(b"a")
                other_writer.write(await other_reader.readexactly(1))
                assert await reader.readexactly(1) == b"a"
    finally:
        for each in (writer, other_writer):
            each.close()
            await each.wait_closed()


@virtual_scenario
async def test_the_clock_stands_still_while_a_thread_works() -> None:
    with takes(0.0, NEAR_S):
        async with asyncio.timeout(0.01):
            await asyncio.to_thread(time.sleep, 0.05)


@virtual_scenario
async def test_a_condition_is_noticed_at_the_time_of_its_event() -> None:
    happened = asyncio.Event()
    asyncio.get_running_loop().call_later(100.0, happened.set)
    with takes(100.0, NEAR_S):
        await eventually(happened.is_set, "the timer")


def test_a_test_that_nothing_can_wake_fails_at_once() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="without a timer, nothing can happen"):
        run_virtual(waits())


def test_the_clocks_are_real_again_after_it() -> None:
    before = time.monotonic()
    run_virtual(asyncio.sleep(3600.0))
    assert time.monotonic() - before < 1800.0
    assert abs(clock.monotonic() - before) < 1800.0
