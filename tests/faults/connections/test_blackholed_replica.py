"""A replica that drops packets: all requests waiting for a connection to it fail at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from router.config.model import Queue
from router.core.errors import Reason
from router.fleet.replica import Replica
from tests.harness.behaviours import json_ok
from tests.harness.listeners import blackhole
from tests.harness.messages import chat
from tests.harness.reading import Response
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, assert_error, running, virtual_scenario
from tests.harness.virtual_time import takes

CROWD = 24
QUIET = "probes are told of by hand, when all that are to wait do"


def first(router: Router) -> Replica:
    return next(iter(router.app.parts.fleet.replicas.values()))


@asynccontextmanager
async def lost(replicas: int, **rules: Any) -> AsyncIterator[Router]:
    """Run `replicas` replicas; the first one passed its probe and then drops packets."""
    hostile = HostileReplica(json_ok)
    hostile.start()
    async with running(
        hostile,
        *[json_ok] * (replicas - 1),
        policy="round_robin",
        queue=Queue(enabled=False),  # the queue's gates would hold back the requests
        quiet_control_plane=QUIET,
        **rules,
    ) as router:
        await hostile.stop_listening()
        with blackhole(hostile.port):
            yield router


async def crowd(router: Router, waiting: int) -> list[asyncio.Task[Response]]:
    """Send many requests; return once `waiting` of them wait for a connection to the first
    replica.
    """
    asked = [asyncio.ensure_future(router.ask(chat(), "POST")) for _ in range(CROWD)]
    pool = first(router).pool
    await eventually(lambda: pool.waiting == waiting, f"{waiting} wait for a connection")
    return asked


@virtual_scenario
async def test_all_of_a_crowd_fail_when_the_first_of_them_do() -> None:
    """One connection is opened at a time, and twenty-four in sequence would take 48 seconds."""
    async with lost(1, limits={"connecting": 1}) as router:
        asked = await crowd(router, CROWD)
        with takes(2.0):
            answers = await asyncio.gather(*asked)
        for answer in answers:
            assert_error(answer, Reason.CONNECT_TIMEOUT)
        assert first(router).pool.waiting == 0


@virtual_scenario
async def test_an_ejection_releases_all_that_wait() -> None:
    async with lost(2, timeouts={"connect_s": 600.0}, limits={"connecting": 2}) as router:
        asked = await crowd(router, CROWD // 2)
        fleet = router.app.parts.fleet
        for _ in range(fleet.rules.eject_after):
            fleet.outcomes.failed(first(router), Reason.CONNECT_TIMEOUT)
        assert first(router).health.is_ejected(fleet.clock())
        for answer in await asyncio.gather(*asked):
            assert answer.status == 200
        assert first(router).pool.waiting == 0
        tried = [line["attempts"] for line in await router.log(CROWD)]
        assert sorted(tried) == [1] * (CROWD // 2) + [2] * (CROWD // 2)


@virtual_scenario
async def test_probes_that_fail_release_all_that_wait() -> None:
    async with lost(2, timeouts={"connect_s": 600.0}, limits={"connecting": 2}) as router:
        asked = await crowd(router, CROWD // 2)
        fleet = router.app.parts.fleet
        for _ in range(fleet.rules.fall):
            fleet.probes.probed(first(router), False)
        assert len(fleet.serving.ready) == 1
        for answer in await asyncio.gather(*asked):
            assert answer.status == 200


@virtual_scenario
async def test_the_reason_of_those_that_are_released_is_that_of_the_last_attempt() -> None:
    async with lost(1) as router:
        assert_error(await router.ask(chat()), Reason.CONNECT_TIMEOUT)
        client = await router.send(chat())
        await eventually(lambda: first(router).pool.waiting == 1, "it waits")
        first(router).give_up()
        assert_error(await client.recv_response(), Reason.CONNECT_TIMEOUT)


@virtual_scenario
async def test_a_request_cancelled_while_released_is_released_once() -> None:
    async with lost(2, timeouts={"connect_s": 600.0}) as router:
        clients = [await router.send(chat()) for _ in range(4)]
        pool = first(router).pool
        await eventually(lambda: pool.waiting == 2, "two wait")
        first(router).give_up()
        for client in clients:
            client.rst()
        await eventually(lambda: not router.busy(), "all are gone")
        assert (pool.waiting, pool.connecting) == (0, 0)
