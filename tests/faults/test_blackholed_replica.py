"""A replica that drops packets: whoever waits for a connection to it waits once, not in turn."""

from __future__ import annotations

import asyncio

from router.config.model import Queue
from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.listeners import blackhole
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, running, scenario

CROWD = 24
NO_QUEUE = Queue(enabled=False)  # its gates would hold back the crowd


async def crowd(router: Router) -> list[asyncio.Task[object]]:
    """So many requests, once all of them wait for a connection to the first replica, or are with
    the second."""
    asked = [asyncio.ensure_future(router.ask(chat(), "POST")) for _ in range(CROWD)]
    await asyncio.sleep(0)
    return asked


def connecting(router: Router) -> int:
    (first, *_) = router.app.parts.fleet.replicas.values()
    return first.pool.waiting


@scenario
async def test_all_of_a_crowd_fail_when_the_first_of_them_do() -> None:
    """One connection is opened at a time: twenty-four in turn would take more than the limit."""
    with blackhole() as url:
        timeouts, limits = {"connect_s": 1.5}, {"connecting": 1}
        async with running(url, timeouts=timeouts, limits=limits, queue=NO_QUEUE) as router:
            asked = await crowd(router)
            await eventually(lambda: connecting(router) == CROWD, "all wait for a connection")
            for answer in await asyncio.gather(*asked):
                assert_error(answer, Reason.CONNECT_TIMEOUT)
            assert connecting(router) == 0


@scenario
async def test_an_ejection_releases_all_that_wait() -> None:
    with blackhole() as url:
        timeouts, limits = {"connect_s": 3600.0}, {"connecting": 2}
        async with running(
            url, json_ok, timeouts=timeouts, limits=limits, queue=NO_QUEUE
        ) as router:
            asked = await crowd(router)
            await eventually(lambda: connecting(router) == CROWD // 2, "half of them wait")
            fleet = router.app.parts.fleet
            (first, _) = fleet.replicas.values()
            for _ in range(fleet.rules.eject_after):
                fleet.failed(first, Reason.CONNECT_TIMEOUT)
            assert first.health.is_ejected(fleet._clock())
            for answer in await asyncio.gather(*asked):
                assert answer.status == 200
            assert connecting(router) == 0
            tried = [line["attempts"] for line in await router.log(CROWD)]
            assert sorted(tried) == [1] * (CROWD // 2) + [2] * (CROWD // 2)


@scenario
async def test_probes_that_fail_release_all_that_wait() -> None:
    """The prober finds it out by itself, long before a connection would be given up."""
    with blackhole() as url:
        async with running(
            url,
            json_ok,
            timeouts={"connect_s": 3600.0},
            limits={"connecting": 2},
            health={"interval_s": 0.05, "timeout_s": 0.3, "fall": 3},
            queue=NO_QUEUE,
        ) as router:
            for answer in await asyncio.gather(*(await crowd(router))):
                assert answer.status == 200
            assert len(router.app.parts.fleet.ready) == 1


@scenario
async def test_one_that_leaves_while_it_waits_is_released_once() -> None:
    with blackhole() as url:
        timeouts = {"connect_s": 3600.0}
        async with running(url, json_ok, timeouts=timeouts, queue=NO_QUEUE) as router:
            fleet = router.app.parts.fleet
            (first, second) = fleet.replicas.values()
            clients = [await router.client() for _ in range(4)]
            for client in clients:
                await client.send(chat())
            await eventually(lambda: connecting(router) == 2, "two wait")
            first.give_up()
            for client in clients:
                client.close()
            await eventually(lambda: not router.busy(), "all are gone")
            assert (first.pool.waiting, first.pool.connecting, second.inflight) == (0, 0, 0)
