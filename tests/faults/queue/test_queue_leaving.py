"""A client that disconnects while waiting is removed at once and once, at any moment."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from router.config.model import Reservations
from router.core.urgency import NORMAL
from tests.addons.needed import needs
from tests.harness.client import RawClient
from tests.harness.crowd import Crowd, reaches
from tests.harness.messages import chat, completion, json_response
from tests.harness.queueing import ONE, Turnstile, counts, queue, send, waiting
from tests.harness.reading import Request
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario


def leave(client: RawClient, way: str) -> None:
    if way == "fin":
        client.close()
    elif way == "rst":
        client.rst()
    else:
        client.fin()


@pytest.mark.parametrize("way", ["fin", "rst", "half"])
@pytest.mark.parametrize("stream", [False, True])
@virtual_scenario
async def test_one_that_leaves_is_never_sent(way: str, stream: bool) -> None:
    turnstile = Turnstile()
    timeouts = {"commit_after_s": 0.05}
    async with running(turnstile, replica=ONE, queue=queue(), timeouts=timeouts) as router:
        first = await send(router, "first", queued=False)
        leaver = await send(router, "leaver", stream=stream)
        stays = await send(router, "stays")
        if stream:
            await leaver.recv_until(b": waiting")  # the client has its early 200
        leave(leaver, way)
        await eventually(lambda: waiting(router) == 1, "it is forgotten")
        assert counts(router, "left")[NORMAL] == 1
        turnstile.open(2)
        for client in (first, stays):
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["first", "stays"]
        (line,) = [line for line in await router.log(3) if line["reason"] == "client_gone"]
        assert line["attempts"] == 0


@virtual_scenario
async def test_one_that_only_says_that_he_is_done_is_served_where_that_is_allowed() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue(), allow_half_close=True) as router:
        first = await send(router, "first", queued=False)
        second = await send(router, "second")
        second.fin()
        turnstile.open(2)
        for client in (first, second):
            assert (await client.recv_response()).status == 200
        assert await second.expect_close() == "fin"


@needs("reservations")
@virtual_scenario
async def test_one_that_leaves_between_two_attempts_gets_no_other() -> None:
    """The request keeps its place in the queue's counts until it leaves, and then releases it."""

    async def busy(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await go.wait()
            await connection.send(json_response({"error": {"message": "later"}}, 503))

    go = asyncio.Event()
    retry = {"backoff_s": 30.0, "backoff_max_s": 30.0}
    # With reservations, every request is counted.
    rules = queue(reservations=Reservations(enabled=True))
    async with running(busy, busy, replica=ONE, queue=rules, retry=retry) as router:
        dispatcher = router.app.parts.dispatcher
        router.app.parts.context._rng.random = lambda: 1.0  # type: ignore[method-assign]
        client = await send(router, "a", queued=False)
        (exchange,) = dispatcher.exchanges
        await eventually(lambda: len(seen(router)) == 1, "its first attempt")
        go.set()
        await eventually(
            lambda: not exchange.driver.state.live, "it has failed, and the second waits"
        )
        assert exchange.ticket is not None
        client.close()
        await router.quiet()
        assert len(seen(router)) == 1
        (line,) = await router.log()
        assert (line["reason"], line["attempts"]) == ("client_gone", 1)
        (only,) = router.app.parts.queue.pools.queues  # type: ignore[union-attr]
        assert list(only.gates.by_place) and all(
            only.gates.is_open(place, NORMAL) for place in list(only.gates.by_place)
        )


@virtual_scenario
async def test_the_place_of_one_that_leaves_goes_to_the_next_in_the_same_moment() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        second = await send(router, "second")
        third = await send(router, "third")
        first.close()
        second.close()
        turnstile.open(2)
        assert (await third.recv_response()).status == 200
        assert turnstile.tags == ["first", "third"]


def came_to(router: Router) -> int:
    return sum(counts(router, "queued")) + sum(counts(router, "passed"))


def seen(router: Router) -> list[Request]:
    """All requests received by the router's replicas."""
    return [asked for replica in router.replicas for asked in replica.requests]


class Books:
    """The ends of requests in the log, and the queue's counters."""

    def __init__(self, router: Router) -> None:
        lines = router.lines()
        self.reasons = Counter(line["reason"] for line in lines)
        self.unsent = Counter(line["reason"] for line in lines if not line["attempts"])
        self.queued, self.granted, self.expired, self.left = (
            sum(counts(router, what)) for what in ("queued", "granted", "expired", "left")
        )


@pytest.mark.parametrize("seed", range(3))
@virtual_scenario
async def test_grants_deadlines_and_departures_race_to_one_end_each(seed: int) -> None:
    """Three hundred waiting requests, with deadlines and disconnects at the time of their
    grants.
    """

    async def quick(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await asyncio.sleep(0.001)
            await connection.send(completion())

    rng = Random(seed)
    count = 300
    replica = {"max_inflight": 2}
    async with running(quick, replica=replica, queue=queue(policy="fifo")) as router:
        crowd = Crowd(router.port)
        await crowd.connect(count)
        crowd.send(
            range(count),
            lambda _: chat(f"x-request-timeout-ms: {rng.choice((100, 200, 300, 60_000))}"),
        )
        await reaches(lambda: came_to(router), count, "came")
        leavers = rng.sample(range(count), count // 3)
        while leavers:
            some, leavers = leavers[:5], leavers[5:]
            crowd.leave(some)
            await asyncio.sleep(0.002)
        stay = count - count // 3
        await reaches(lambda: len(router.lines()), count, "have ended")
        await crowd.close()
        await router.quiet()
        books = Books(router)
        assert sum(books.reasons.values()) == count
        assert books.queued == books.granted + books.expired + books.left
        assert books.expired <= books.reasons["deadline_passed"]
        assert books.left <= books.reasons["client_gone"] <= count // 3
        assert set(books.reasons) <= {"ok", "client_gone", "deadline_passed"}
        sent = len(router.replica.requests)
        assert sent <= books.granted + sum(counts(router, "passed"))
        assert len(set(crowd.answered)) == len(crowd.answered) >= stay
