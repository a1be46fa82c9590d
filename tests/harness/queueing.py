"""What tests of the queue over sockets share: its settings, a replica that answers on permission,
and what the queue counts.
"""

import asyncio
import json
from typing import Any

from policies.queueing.ticket import CLASSES
from router.admission.counts import EXPIRIES
from router.admission.pools import Pools
from router.config.model import (
    BatchClass,
    Classes,
    ClassSettings,
    CriticalClass,
    HighClass,
    LowClass,
    Queue,
)
from tests.harness.client import RawClient
from tests.harness.messages import chat, completion
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router

BY_HAND = "the test says which replica is fit"
ONE = {"max_inflight": 1}  # one request at a time at each replica


def queue(**rules: Any) -> Queue:
    """The section `queue`: the most urgent class first, unless the test gives another order."""
    return Queue(enabled=True, **{"order": "strict", **rules})


def of_normal(**rules: Any) -> Classes:
    """Settings of the class normal alone."""
    return Classes(normal=ClassSettings(**rules))


def of_each(**rules: Any) -> Classes:
    """The same settings for every class."""
    return Classes(
        critical=CriticalClass(**rules),
        high=HighClass(**rules),
        normal=ClassSettings(**rules),
        low=LowClass(**rules),
        batch=BatchClass(**rules),
    )


class Turnstile:
    """A replica that answers one request for each permit, and records their tags."""

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


def _pools(router: Router) -> Pools:
    driver = router.app.parts.queue
    assert driver is not None
    return driver.pools


def waiting(router: Router) -> int:
    """The number of requests that wait in the queue."""
    return _pools(router).waiting


def counts(router: Router, what: str) -> list[int]:
    """A count of the queue by class. `what`: a field of the counts, the reason of a drop, or
    "expired": the drops for all reasons that are time limits."""
    counted = _pools(router).queues[0].counts
    dropped = counted.dropped
    if what == "expired":
        return [sum(dropped[reason][n] for reason in EXPIRIES) for n in range(CLASSES)]
    found: list[int] = dropped[what] if what in dropped else getattr(counted, what)
    return found


def dropped(router: Router) -> dict[tuple[str, int], int]:
    """The drops by reason and class."""
    counted = _pools(router).queues[0].counts.dropped
    return {(str(why), n): by[n] for why, by in counted.items() for n in range(CLASSES) if by[n]}


async def send(router: Router, tag: str, *, queued: bool = True, **body: Any) -> RawClient:
    """Send a request on a new connection, and return when it waits (or, not `queued`, is sent)."""
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
