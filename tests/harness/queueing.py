"""What tests of the queue over sockets share: its settings, a replica that answers on permission,
and what the queue counts.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from policies.queueing.ticket import CLASSES
from router.admission.counts import EXPIRIES
from router.config.model import (
    BatchClass,
    CriticalClass,
    HighClass,
    LowClass,
    Queue,
    QueueClass,
    QueueClasses,
)
from tests.harness.client import RawClient
from tests.harness.messages import chat, completion, request
from tests.harness.reading import Response
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router

BY_HAND = "the test says which replica is fit"
ONE = {"max_inflight": 1}  # at each replica


def queue(**rules: Any) -> Queue:
    return Queue(enabled=True, **{"order": "strict", **rules})


def of_normal(**rules: Any) -> QueueClasses:
    return QueueClasses(normal=QueueClass(**rules))


def of_each(**rules: Any) -> QueueClasses:
    """The same rules for every class."""
    return QueueClasses(
        critical=CriticalClass(**rules),
        high=HighClass(**rules),
        normal=QueueClass(**rules),
        low=LowClass(**rules),
        batch=BatchClass(**rules),
    )


class Turnstile:
    """A replica that answers one request for each permit, and notes their tags."""

    def __init__(self) -> None:
        self.permits = asyncio.Semaphore(0)
        self.tags: list[str] = []
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            body = json.loads(asked.body)
            self.bodies.append(body)
            self.tags.append(body.get("tag", ""))
            await self.permits.acquire()
            await connection.send(completion())

    def open(self, times: int = 1) -> None:
        for _ in range(times):
            self.permits.release()


def waiting(router: Router) -> int:
    line = router.app.parts.dispatcher.queue
    assert line is not None
    return line.pools.waiting


def counts(router: Router, what: str) -> list[int]:
    """By class: what the queue counts under this name, or drops for this reason; "expired": those
    whose time was over, whichever it was."""
    line = router.app.parts.dispatcher.queue
    assert line is not None
    told = line.pools.queues[0].counts
    if what == "expired":
        return [sum(told.dropped[reason][n] for reason in EXPIRIES) for n in range(CLASSES)]
    found: list[int] = told.dropped[what] if what in told.dropped else getattr(told, what)
    return found


def dropped(router: Router) -> dict[tuple[str, int], int]:
    """By reason and class."""
    line = router.app.parts.dispatcher.queue
    assert line is not None
    counted = line.pools.queues[0].counts.dropped
    return {(str(why), n): by[n] for why, by in counted.items() for n in range(CLASSES) if by[n]}


async def send(router: Router, tag: str, *, queued: bool = True, **body: Any) -> RawClient:
    """A request of its own connection, once it waits (or, not `queued`, once it is sent)."""
    client = await router.client()
    before = waiting(router)
    under_way = len(router.app.parts.dispatcher.exchanges)
    await client.send(chat(tag=tag, **body))
    if queued:
        await eventually(lambda: waiting(router) == before + 1, f"{tag} waits")
    else:
        exchanges = router.app.parts.dispatcher.exchanges
        await eventually(lambda: len(exchanges) == under_way + 1, f"{tag} is under way")
        assert waiting(router) == before
    return client


async def admin(router: Router, path: str) -> Response:
    client = await RawClient.connect(router.app.admin_port)
    try:
        await client.send(request(path, "Connection: close"))
        return await client.recv_response()
    finally:
        client.close()
