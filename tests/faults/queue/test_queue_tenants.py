"""Tenants and users in a queue: headers, many requests or invented names give no advantage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policies.queueing.accounts import IDLE_MAX, Account
from policies.queueing.shared import SharedByFlow
from router.admission.output_lengths import FLOWS_MAX
from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Queue
from router.core.urgency import LOW
from tests.examples import ALL
from tests.harness.behaviours import json_ok, until_closed
from tests.harness.crowd import Crowd, needs_files, reaches
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chat,
    chunk,
    json_response,
    token,
)
from tests.harness.queueing import ONE, Turnstile, queue, send, waiting
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario

MANY = 1000
NAMES = 10_000 if ALL else 5_000
CROWD = 100
FAIR = Queue(enabled=True)  # the default order shares fairly


def keys_of(folder: Path, *names: str, **fields: Any) -> Keys:
    """A keys file; the key of a tenant is its name and `-key`."""
    path = folder / "keys.jsonl"
    lines = [KeyLine(name=n, hash=hash_of(f"{n}-key".encode()), **fields.get(n, {})) for n in names]
    path.write_text("".join(line_of(line) + "\n" for line in lines))
    return Keys(file=str(path), names_users=True)


def bearer(name: str) -> str:
    return f"Authorization: Bearer {name}-key"


# -- urgency -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["header", "body", "endpoint"])
@virtual_scenario
async def test_a_tenants_ceiling_holds_in_the_queue_however_he_asks(
    tmp_path: Path, way: str
) -> None:
    """The tenant is limited to low; it requests critical and waits after another's normal
    request.
    """
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "small", "large", small={"ceiling": "low"})
    async with running(turnstile, replica=ONE, queue=queue(), keys=keys) as router:
        clients = [await send(router, "first", queued=False)]
        fields = [bearer("small")]
        body: dict[str, Any] = {}
        if way == "header":
            fields.append("x-priority: critical")
        elif way == "body":
            body["priority"] = "critical"
        data = chat(*fields, tag="small", **body)
        if way == "endpoint":
            data = data.replace(b"/v1/chat", b"/v1/priority/chat", 1)
        for request in (data, chat(bearer("large"), tag="large")):
            clients.append(await router.client())
            before = waiting(router)
            await clients[-1].send(request)
            await eventually(lambda b=before: waiting(router) == b + 1, "it waits")  # type: ignore[misc]
        turnstile.open(3)
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["first", "large", "small"]
        classes = [line["class"] for line in await router.log(3)]
        assert classes == ["normal", "normal", "low"]
        clamped = router.app.parts.dispatcher.tenants.judge.clamped
        assert {source: sum(found) for source, found in clamped.items() if any(found)} == {way: 1}
        assert clamped[way][LOW] == 1


# -- one against many --------------------------------------------------------------------------


async def overtakes(router: Router, turnstile: Turnstile, many: Callable[[int], bytes]) -> None:
    """A thousand requests wait, then one of another tenant: it is served after at most one
    of them.
    """
    needs_files(2 * MANY)
    crowd = Crowd(router.port)
    await crowd.connect(MANY + 1)
    crowd.send(range(1), many)
    await eventually(lambda: len(turnstile.tags) == 1, "one is being served")
    crowd.send(range(1, MANY), many)
    await reaches(lambda: waiting(router), MANY - 1, "wait")
    crowd.send([MANY], lambda _: chat(bearer("single"), "x-user-id: only", tag="single"))
    await reaches(lambda: waiting(router), MANY, "wait")
    turnstile.open(3)
    await crowd.all_answered(3)
    assert "single" in turnstile.tags[:3]
    assert MANY in crowd.answered
    turnstile.open(MANY)
    await crowd.all_answered(MANY + 1)
    assert set(crowd.statuses.values()) == {200}
    assert len(turnstile.tags) == MANY + 1
    await crowd.close()


@pytest.mark.parametrize("crowd", ["a user of the same key", "a key", "a key of many users"])
@virtual_scenario
async def test_a_thousand_requests_and_one(tmp_path: Path, crowd: str) -> None:
    def many(number: int) -> bytes:
        if crowd == "a user of the same key":
            return chat(bearer("single"), "x-user-id: greedy", tag="many")
        if crowd == "a key":
            return chat(bearer("greedy"), tag="many")
        return chat(bearer("greedy"), f"x-user-id: {number}", tag="many")

    turnstile = Turnstile()
    users = {"names_users": True}
    keys = keys_of(tmp_path, "single", "greedy", single=users, greedy=users)
    async with running(turnstile, replica=ONE, queue=FAIR, keys=keys) as router:
        await overtakes(router, turnstile, many)


@virtual_scenario
async def test_work_whose_client_leaves_is_charged(tmp_path: Path) -> None:
    """If it were not charged, a tenant that disconnects just before each end would get too much."""
    go = asyncio.Event()
    tags: list[str] = []

    async def engine(connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            tags.append(asked.json().get("tag", ""))
            if tags[-1] == "paced":  # shows the engine's speed: one token per 10 ms
                await connection.send(SSE_HEAD)
                for _ in range(20):
                    await connection.send(chunk(token("a")))
                    await asyncio.sleep(0.01)
                await connection.send(chunk(DONE), LAST_CHUNK)
            elif tags[-1] == "left":
                await until_closed(connection)
            else:
                await go.wait()
                usage = {"prompt_tokens": 30, "completion_tokens": 1, "total_tokens": 31}
                await connection.send(json_response({"choices": [], "usage": usage}))

    keys = keys_of(tmp_path, "leaves", "stays")
    async with running(engine, replica=ONE, queue=FAIR, keys=keys) as router:
        assert (await router.ask(chat(stream=True, tag="paced"))).complete
        clients = [await send(router, "first", queued=False)]
        sent = (("leaves", "left"), ("stays", "one"), ("leaves", "two"), ("stays", "three"))
        for name, tag in sent:
            clients.append(await router.client())
            before = waiting(router)
            await clients[-1].send(chat(bearer(name), tag=tag, max_tokens=1000))
            await eventually(lambda b=before: waiting(router) == b + 1, "it waits")  # type: ignore[misc]
        go.set()
        await eventually(lambda: tags[-1] == "left", "it is served")
        await asyncio.sleep(0.6)  # the time of about sixty tokens
        clients[1].rst()
        for client in (clients[0], *clients[2:]):
            assert (await client.recv_response()).status == 200
        assert tags == ["paced", "first", "left", "one", "three", "two"]


# -- many names --------------------------------------------------------------------------------


def held(router: Router) -> dict[str, int]:
    """Everything that the queue stores per flow or ticket."""
    dispatcher = router.app.parts.dispatcher
    queue = router.app.parts.queue
    assert queue is not None
    (only,) = queue.pools.queues
    order = only.rules.order
    assert isinstance(order, SharedByFlow)
    keys = [key for book in order.books for key in book.keys.by_name.values()]
    return {
        "flows": only.wait_lists.holders._parties,
        "deadlines": len(only.wait_lists._deadlines),
        "outputs": len(only.runs.outputs),
        "pending": len(dispatcher.tenants.pending),
        "accounts": sum(1 + len(key.users or ()) for key in keys),
        "nodes": sum(len(key.nodes) + sum(len(u.nodes) for u in users_of(key)) for key in keys),
    }


def users_of(key: Account) -> list[Account]:
    return [] if key.users is None else list(key.users.by_name.values())


@virtual_scenario
async def test_thousands_of_users_leave_little_behind() -> None:
    """Each user sends one request and never returns, and the queue is never empty."""
    needs_files(2 * CROWD)
    keys = Keys(names_users=True)
    async with running(json_ok, replica={"max_inflight": 4}, queue=FAIR, keys=keys) as router:
        crowd = Crowd(router.port)
        await crowd.connect(CROWD)
        names = iter(range(NAMES))

        def ask(_: int) -> bytes:
            return chat(f"x-user-id: user-{next(names)}", "x-request-timeout-ms: 50000")

        most: dict[str, int] = {}
        crowd.send(range(CROWD), ask)
        seen, sent, looked = 0, CROWD, 0
        while seen < NAMES:
            await reaches(lambda: len(crowd.answered), seen + 1, "answered")
            fresh = crowd.answered[seen:]
            seen += len(fresh)
            some = fresh[: NAMES - sent]
            sent += len(some)
            crowd.send(some, ask)
            if seen >= looked + CROWD:
                looked = seen
                for name, number in held(router).items():
                    most[name] = max(number, most.get(name, 0))
        assert set(crowd.statuses.values()) == {200}
        print(f"at most {most}, then {held(router)}")
        assert most["flows"] <= 256 + 2 * CROWD
        assert most["deadlines"] <= 64 + 3 * CROWD
        assert most["outputs"] <= FLOWS_MAX
        assert most["pending"] <= CROWD
        assert most["accounts"] <= 1 + IDLE_MAX + CROWD
        assert most["nodes"] <= 2 * CROWD
        left = held(router)
        assert (left["pending"], waiting(router)) == (0, 0)
        assert left["deadlines"] <= 64
        await crowd.close()
