"""One flow fills a class of the queue: requests of this flow are evicted for those of other
flows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from router.config.model import QueueLimits
from router.core.errors import Reason
from router.core.urgency import NORMAL
from router.intake.flow import Flow
from tests.faults.queue.test_flow_without_keys import PROXY, of
from tests.faults.queue.test_queue_tenants import bearer, keys_of
from tests.harness.client import RawClient
from tests.harness.crowd import Crowd, reaches
from tests.harness.messages import chat
from tests.harness.queueing import ONE, Turnstile, counts, of_normal, queue, waiting
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, running, virtual_scenario

DEPTH = 200
SENT = 600


async def flooded(router: Router, turnstile: Turnstile, ask: Callable[[int], bytes]) -> Crowd:
    """Many requests of one party, of which the class accepts as many as its limit."""
    crowd = Crowd(router.port)
    await crowd.connect(SENT)
    crowd.send([0], ask)
    await eventually(lambda: len(turnstile.tags) == 1, "the first is being served")
    crowd.send(range(1, SENT), ask)
    await reaches(lambda: len(crowd.answered), SENT - DEPTH - 1, "refused")
    assert set(crowd.statuses.values()) == {429}
    assert waiting(router) == DEPTH
    return crowd


@pytest.mark.parametrize("flood", ["one bearer", "invented bearers"])
@virtual_scenario
async def test_a_flood_of_one_flow_does_not_block_others(tmp_path: Path, flood: str) -> None:
    """Each new request of another flow evicts the flood's newest request, and is served before
    it.
    """

    def ask(number: int) -> bytes:
        return chat(*of("greedy" if flood == "one bearer" else f"invented-{number}"), tag="flood")

    turnstile = Turnstile()
    others = {
        "other address": of("other", "192.0.2.2"),
        "same address": of("modest"),
        "known key": [bearer("acme")],
    }
    if flood != "one bearer":
        del others["same address"]  # this request looks like one with an invented credential
    settings: dict[str, Any] = {
        "classes": of_normal(depth=DEPTH),
        "keys": keys_of(tmp_path, "acme"),
        "trusted_proxies": PROXY,
    }
    async with running(turnstile, replica=ONE, **settings) as router:
        crowd = await flooded(router, turnstile, ask)
        for tag, fields in others.items():
            client = await router.send(chat(*fields, tag=tag))
            gone = len(crowd.answered) + 1
            await reaches(lambda: len(crowd.answered), gone, "gave way")
        assert waiting(router) == DEPTH
        assert counts(router, Reason.QUEUE_EVICTED)[NORMAL] == len(others)
        turnstile.open(1 + 2 * len(others))
        for client in router.clients:
            assert (await client.recv_response()).status == 200
        turnstile.open(DEPTH)
        await crowd.all_answered(SENT)
        await crowd.close()


async def waits(router: Router, *fields: str, **body: Any) -> RawClient:
    """Send a request on its own connection, and return once it waits."""
    client = await router.client()
    before = sum(counts(router, "queued"))
    await client.send(chat(*fields, **body))
    await eventually(lambda: sum(counts(router, "queued")) == before + 1, "it waits")
    return client


@virtual_scenario
async def test_the_newest_request_is_evicted_with_retry_after() -> None:
    turnstile = Turnstile()
    classes = of_normal(depth=3)
    async with running(
        turnstile, replica=ONE, queue=queue(), classes=classes, trusted_proxies=PROXY
    ) as router:
        clients = [await waits_not(router)]
        clients += [await waits(router, *of("greedy"), tag=tag) for tag in ("old", "newer")]
        newest = await waits(router, *of("greedy"), tag="newest")
        clients.append(await waits(router, *of("small", "192.0.2.2"), tag="small"))
        answer = await newest.recv_response()
        assert_error(answer, Reason.QUEUE_EVICTED, 429)
        assert int(answer.header("retry-after") or 0) >= 1
        turnstile.open(5)
        for client in clients:
            assert (await client.recv_response()).status == 200
        await newest.send(chat(tag="again"))  # the refused client's connection is still usable
        assert (await newest.recv_response()).status == 200
        assert set(turnstile.tags) == {"first", "old", "newer", "small", "again"}
        reasons = Counter(line["reason"] for line in await router.log(6))
        assert reasons == {"ok": 5, "queue_evicted": 1}


async def waits_not(router: Router) -> RawClient:
    client = await router.send(chat(tag="first"))
    await eventually(lambda: sum(counts(router, "passed")) == 1, "it is sent")
    return client


@virtual_scenario
async def test_a_stream_with_an_early_200_does_not_give_way() -> None:
    """An evicted stream after a 200 would get an error event: the newest without a 200 is
    evicted.
    """
    turnstile = Turnstile()
    classes = of_normal(depth=4)
    timeouts = {"commit_after_s": 0.1}
    settings: dict[str, Any] = {
        "queue": queue(),
        "classes": classes,
        "timeouts": timeouts,
        "trusted_proxies": PROXY,
    }
    async with running(turnstile, replica=ONE, **settings) as router:
        clients = [await waits_not(router)]
        silent = [await waits(router, *of("greedy"), tag=tag) for tag in ("a", "b")]
        streams = [await waits(router, *of("greedy"), tag=tag, stream=True) for tag in ("c", "d")]
        for stream in streams:
            await stream.recv_until(b": waiting")
        small = await waits(router, *of("small", "192.0.2.2"), tag="small")
        assert_error(await silent[1].recv_response(), Reason.QUEUE_EVICTED)
        for client in (*streams, silent[0], small):
            client.close()
        turnstile.open()
        assert (await clients[0].recv_response()).status == 200


@virtual_scenario
async def test_half_of_a_class_may_be_sent_an_early_200() -> None:
    """Without this limit, a flow could fill the class, wait for its early 200s, and never be
    evicted.
    """
    turnstile = Turnstile()
    classes = of_normal(depth=4)
    settings: dict[str, Any] = {"queue": queue(), "classes": classes, "trusted_proxies": PROXY}
    async with running(
        turnstile, replica=ONE, timeouts={"commit_after_s": 0.1}, **settings
    ) as router:
        first = await waits_not(router)
        streams = [await waits(router, *of("greedy"), tag=tag, stream=True) for tag in "abcd"]
        metrics = router.app.parts.metrics
        await eventually(lambda: metrics.streams_committed_early == 2, "half of them are told")
        small = await waits(router, *of("small", "192.0.2.2"), tag="small")
        assert counts(router, Reason.QUEUE_EVICTED)[NORMAL] == 1
        assert metrics.streams_committed_early == 2
        await reaches(lambda: len(router.lines()), 1, "told")
        assert [line["status"] for line in router.lines()] == [429]
        for client in (*streams, small):
            client.close()
        turnstile.open()
        assert (await first.recv_response()).status == 200


@virtual_scenario
async def test_bytes_are_taken_back_from_the_flow_that_holds_most_of_them() -> None:
    turnstile = Turnstile()
    rules = queue(limits=QueueLimits(bytes=20_000))
    async with running(turnstile, replica=ONE, queue=rules, trusted_proxies=PROXY) as router:
        clients = [await waits_not(router)]
        clients += [await waits(router, *of("greedy"), tag="x" * 8_000)]
        newest = await waits(router, *of("greedy"), tag="y" * 8_000)
        clients.append(await waits(router, *of("small", "192.0.2.2"), tag="z" * 6_000))
        assert_error(await newest.recv_response(), Reason.QUEUE_EVICTED)
        refused = await router.ask(chat(*of("greedy"), tag="y" * 8_000), "POST")
        assert_error(refused, Reason.QUEUE_BYTES_FULL)
        turnstile.open(3)
        for client in clients:
            assert (await client.recv_response()).status == 200


@virtual_scenario
async def test_memory_that_cannot_be_freed_is_not_freed_in_part() -> None:
    """If memory is short, a new body evicts requests of larger flows only if that frees enough
    memory.
    """
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue(), trusted_proxies=PROXY) as router:
        clients = [await waits_not(router)]
        clients += [
            await waits(router, *of("greedy"), tag=tag * 1_000)
            for tag in ("old", "middle", "newest")
        ]
        driver = router.app.parts.queue
        assert driver is not None
        queued = driver.pools.queues[0]
        held, newcomer = queued.body_bytes, Flow("other", "", "")
        for missing in (12_000, held):
            assert not driver.relieve(newcomer, missing), "its own would be the largest flow"
            assert (queued.waiting, queued.body_bytes) == (3, held)
        assert driver.relieve(newcomer, 7_000)  # two of the requests are evicted
        assert queued.waiting == 1
        turnstile.open(2)
        for client, status in zip(clients, (200, 200, 429, 429), strict=True):
            assert (await client.recv_response()).status == status


@virtual_scenario
async def test_one_that_leaves_in_the_moment_it_gives_way_is_counted_once() -> None:
    turnstile = Turnstile()
    classes = of_normal(depth=2)
    async with running(
        turnstile, replica=ONE, queue=queue(), classes=classes, trusted_proxies=PROXY
    ) as router:
        first = await waits_not(router)
        old = await waits(router, *of("greedy"), tag="old")
        newest = await waits(router, *of("greedy"), tag="newest")
        small = await router.client()
        driver = router.app.parts.queue
        assert driver is not None
        loop = asyncio.get_running_loop()
        left: list[Reason] = []

        def leave() -> None:
            """Disconnect the evicted client. Runs in every turn of the loop: also between the
            eviction and its answer.
            """
            for gone in driver._evictions._evicted:
                exchange: Any = gone.ticket.request
                left.append(Reason.CLIENT_GONE)
                exchange.client.abort(Reason.CLIENT_GONE)
            if not counts(router, Reason.QUEUE_EVICTED)[NORMAL]:
                loop.call_soon(leave)

        leave()
        await small.send(chat(*of("small", "192.0.2.2"), tag="small"))
        await reaches(lambda: counts(router, Reason.QUEUE_EVICTED)[NORMAL], 1, "gave way")
        turnstile.open(3)
        for client in (first, old, small):
            assert (await client.recv_response()).status == 200
        newest.close()
        reasons = Counter(line["reason"] for line in await router.log(4))
        assert reasons == {"ok": 3, (left or [Reason.QUEUE_EVICTED])[0].value: 1}
        assert counts(router, Reason.QUEUE_EVICTED)[NORMAL] == 1


@virtual_scenario
async def test_a_reload_with_a_smaller_queue_evicts_no_request() -> None:
    turnstile = Turnstile()
    classes = of_normal(depth=10)
    async with running(
        turnstile, replica=ONE, queue=queue(), classes=classes, trusted_proxies=PROXY
    ) as router:
        clients = [await waits_not(router)]
        clients += [await waits(router, *of("greedy"), tag=f"{n}") for n in range(6)]
        router.change(
            queue=queue(limits=QueueLimits(bytes=100_000)),
            classes=of_normal(depth=3),
        )
        await router.app.reload()
        assert waiting(router) == 6
        small = await waits(router, *of("small", "192.0.2.2"), tag="small")
        gone = clients[3:]
        for client in gone:
            assert_error(await client.recv_response(), Reason.QUEUE_EVICTED)
        assert waiting(router) == 3
        turnstile.open(4)
        for client in (*clients[:3], small):
            assert (await client.recv_response()).status == 200


@virtual_scenario
async def test_a_full_class_takes_nothing_from_another() -> None:
    turnstile = Turnstile()
    classes = of_normal(depth=2)
    async with running(
        turnstile, replica=ONE, queue=queue(), classes=classes, trusted_proxies=PROXY
    ) as router:
        clients = [await waits_not(router)]
        low = [await waits(router, *of("greedy"), priority="low") for _ in range(5)]
        clients += [await waits(router, *of(name), tag=name) for name in ("a", "b")]
        refused = await router.ask(chat(*of("c")), "POST")
        assert_error(refused, Reason.QUEUE_FULL)
        turnstile.open(8)
        for client in (*clients, *low):
            assert (await client.recv_response()).status == 200
