"""A key limited to two requests at replicas: further requests wait without counting for the
limit.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Queue
from router.core.errors import Reason
from tests.faults.queue.test_queue_tenants import bearer, keys_of
from tests.harness.client import RawClient
from tests.harness.messages import chat
from tests.harness.queueing import Turnstile, queue, waiting
from tests.harness.reading import Response
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, running, virtual_scenario

MANY = 20
TWO: dict[str, Any] = {"concurrency": 2}
ACME = bearer("acme")
OTHER = bearer("other")


async def ask(router: Router, *fields: str, tag: str) -> RawClient:
    client = await router.send(chat(*fields, tag=tag))
    return client


@pytest.mark.parametrize("policy", ["fair", "fifo", "drr", "edf"])
@virtual_scenario
async def test_waiting_requests_hold_no_concurrency(tmp_path: Path, policy: str) -> None:
    """The replica has room for all of them. The key's limit lets two run at a time."""
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme", "other", acme=TWO)
    async with running(turnstile, queue=queue(policy=policy), keys=keys) as router:
        clients = [await ask(router, ACME, tag="acme") for _ in range(MANY)]
        await eventually(lambda: waiting(router) == MANY - 2, "all but two wait")
        assert turnstile.tags == ["acme", "acme"]
        passing = await ask(router, OTHER, tag="other")
        await eventually(lambda: "other" in turnstile.tags, "another key passes by")
        assert turnstile.tags == ["acme", "acme", "other"]
        driver = router.app.parts.queue
        assert driver is not None and waiting(router) == MANY - 2
        turnstile.open(3)
        assert (await passing.recv_response()).status == 200
        for done in range(2, MANY):
            most = min(MANY, done + 2)
            await eventually(lambda n=most: turnstile.tags.count("acme") == n, "two at a time")  # type: ignore[misc]
            turnstile.open()
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert waiting(router) == 0


@virtual_scenario
async def test_requests_that_wait_for_a_replica_hold_none_either(tmp_path: Path) -> None:
    """The replica takes one request at a time, and is busy with another key's request."""
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme", "other", acme=TWO)
    one = {"max_inflight": 1}
    async with running(turnstile, replica=one, queue=queue(policy="fifo"), keys=keys) as router:
        clients = [await ask(router, OTHER, tag="first")]
        await eventually(lambda: turnstile.tags == ["first"], "it is being served")
        for n in range(MANY):
            clients.append(await ask(router, ACME, tag="acme"))
            await eventually(lambda n=n: waiting(router) == n + 1, "it waits")  # type: ignore[misc]
        clients.append(await ask(router, OTHER, tag="last"))
        await eventually(lambda: waiting(router) == MANY + 1, "it waits")
        turnstile.open(MANY + 2)
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["first", *["acme"] * MANY, "last"]


@virtual_scenario
async def test_clients_leave_and_deadlines_pass_while_the_limit_blocks(tmp_path: Path) -> None:
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme", acme={"concurrency": 1})
    async with running(turnstile, queue=queue(), keys=keys) as router:
        first = await ask(router, ACME, tag="first")
        await eventually(lambda: turnstile.tags == ["first"], "it is being served")
        second = await ask(router, ACME, tag="second")
        await eventually(lambda: waiting(router) == 1, "it waits")
        late = await ask(router, ACME, "x-request-timeout-ms: 200", tag="late")
        await eventually(lambda: waiting(router) == 2, "it waits")
        third = await ask(router, ACME, tag="third")
        await eventually(lambda: waiting(router) == 3, "it waits")
        assert_error(await late.recv_response(), Reason.DEADLINE_PASSED, 408)
        second.close()
        await eventually(lambda: waiting(router) == 1, "it left")
        first.close()
        await eventually(lambda: turnstile.tags == ["first", "third"], "the place is free")
        turnstile.open(2)
        assert (await third.recv_response()).status == 200


@pytest.mark.parametrize("after", [{"concurrency": 3}, {}, None])
@virtual_scenario
async def test_a_reload_while_the_limit_blocks(
    tmp_path: Path, after: dict[str, Any] | None
) -> None:
    """The limit changes or is removed; or the key is removed, and its requests end."""
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme", acme={"concurrency": 1})
    async with running(turnstile, queue=queue(), keys=keys) as router:
        answers = [
            asyncio.create_task(router.ask(chat(ACME, tag=str(number)))) for number in range(5)
        ]
        driver = router.app.parts.queue
        assert driver is not None
        await eventually(
            lambda: driver.pools.waiting == 4 and len(turnstile.tags) == 1, "all but one wait"
        )
        if after is None:
            keys_of(tmp_path, "other")
        else:
            keys_of(tmp_path, "acme", acme=after)
        await router.app.reload()
        sent = 1 if after is None else after.get("concurrency", 5)
        await eventually(lambda: len(turnstile.tags) == sent, "as many as may are sent")
        assert driver.pools.waiting == (0 if after is None else 5 - sent)
        turnstile.open(5)
        refused = 4 if after is None else 0  # A removed key sends nothing more.
        statuses = sorted([(await answer).status for answer in answers])
        assert statuses == [200] * (5 - refused) + [401] * refused


@virtual_scenario
async def test_what_a_key_has_at_replicas_is_given_back(tmp_path: Path) -> None:
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme", acme=TWO)
    async with running(turnstile, queue=queue(), keys=keys) as router:
        tenants = router.app.parts.dispatcher.tenants
        clients = [await ask(router, ACME, tag="acme") for _ in range(6)]
        await eventually(lambda: len(turnstile.tags) == 2, "two are sent")
        # Two requests of the key, and the class queue in which the others wait.
        assert tenants.at_replicas == 2 + 1
        turnstile.open(6)
        for client in clients:
            assert (await client.recv_response()).status == 200
        await eventually(lambda: tenants.at_replicas == 0, "all is given back")


@virtual_scenario
async def test_a_blocked_request_goes_where_its_prefix_is(tmp_path: Path) -> None:
    """Both replicas have room. The blocked request must not go to the replica where the last
    request of its key ended.
    """
    sites = [Turnstile(), Turnstile()]
    keys = keys_of(tmp_path, "acme", acme={"concurrency": 1})
    prompts = [[{"role": "user", "content": f"{name} " * 2000}] for name in ("one", "two")]
    async with running(*sites, queue=queue(), keys=keys) as router:

        async def begin(number: int, *fields: str, tag: str) -> asyncio.Task[Response]:
            data = chat(*fields, tag=tag, messages=prompts[number])
            return asyncio.create_task(router.ask(data))

        def tags() -> list[str]:
            return [tag for site in sites for tag in site.tags]

        early = []
        for number in range(2):
            early.append(await begin(number, tag=f"early {number}"))
            await eventually(lambda n=number: len(tags()) == n + 1, "it is sent")  # type: ignore[misc]
        for site in sites:
            site.open()
        assert [(await answer).status for answer in early] == [200, 200]
        homes = [next(s for s in sites if f"early {n}" in s.tags) for n in range(2)]
        assert homes[0] is not homes[1]
        first = await begin(0, ACME, tag="first")
        await eventually(lambda: "first" in homes[0].tags, "it goes where its prefix is")
        second = await begin(1, ACME, tag="second")
        driver = router.app.parts.queue
        assert driver is not None
        await eventually(lambda: driver.pools.waiting == 1, "it waits for the first")
        homes[0].open(2)
        homes[1].open()
        assert [(await answer).status for answer in (first, second)] == [200, 200]
        assert "second" in homes[1].tags


@virtual_scenario
async def test_batch_and_chat_of_a_key(tmp_path: Path) -> None:
    """Batch gets what chat leaves of the key, also in the queue; no chat is refused because of
    batch.
    """
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme", acme=TWO)
    async with running(turnstile, queue=queue(), keys=keys) as router:
        batch = "x-priority: batch"
        clients = [await ask(router, ACME, batch, tag="batch")]
        await eventually(lambda: turnstile.tags == ["batch"], "it is sent")
        for number in range(3):
            clients.append(await ask(router, ACME, tag="chat"))
            sent = min(2, number + 1)
            await eventually(lambda n=sent: turnstile.tags.count("chat") == n, "as many as may")  # type: ignore[misc]
        await eventually(lambda: waiting(router) == 1, "the third chat waits")
        refused = await router.ask(chat(ACME, batch, tag="batch"), "POST")
        assert_error(refused, Reason.KEY_CONCURRENCY, 429)
        turnstile.open(4)
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["batch", "chat", "chat", "chat"]


@virtual_scenario
async def test_without_a_queue_a_full_key_is_refused(tmp_path: Path) -> None:
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme", acme=TWO)
    async with running(turnstile, queue=Queue(enabled=False), keys=keys) as router:
        clients = [await ask(router, ACME, tag="acme") for _ in range(2)]
        await eventually(lambda: len(turnstile.tags) == 2, "both are being served")
        answer = await router.ask(chat(ACME, tag="acme"), "POST")
        assert_error(answer, Reason.KEY_CONCURRENCY, 429)
        turnstile.open(2)
        for client in clients:
            assert (await client.recv_response()).status == 200
