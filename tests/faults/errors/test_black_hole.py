"""A replica that answers errors at once must not get the requests of the fleet.

Six clients send requests all the time, or requests arrive at a fixed rate. One replica begins to
answer an error to every request. The other replicas need some time for an answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from router.config.model import Credential, Replica, Upstream
from tests.faults.process.metrics import scrape
from tests.harness.messages import chat, completion, json_response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario

ERROR = {"error": {"message": "no", "type": "error", "param": None, "code": "no"}}
# What the sick replica answers; the last one is an error only in its body.
SICK = {
    "401": json_response(ERROR, 401),
    "404": json_response(ERROR, 404),
    "500": json_response(ERROR, 500),
    "400": json_response(ERROR, 400),
    "429": json_response(ERROR, 429),
    "200": json_response(ERROR, 200),
}
WORK_S = 0.02  # An answer takes this long, an error takes no time.
AT_ONCE = 6  # Clients of the closed loop.
BURST = 60
FIRST_MOST, LATER_MOST = 6, 2  # How many requests of a burst may fail.


class Engine:
    """A replica that works, or gives the answer `sick` to everything."""

    def __init__(self) -> None:
        self.sick = b""
        self.server = HostileReplica(self.behave)
        self.server.start()

    async def behave(self, connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            if self.sick:
                await connection.send(self.sick)
            else:
                await asyncio.sleep(WORK_S)
                await connection.send(completion())


Body = Callable[[int], bytes]


def question(number: int) -> bytes:
    return chat(messages=[{"role": "user", "content": f"question {number}"}])


def turn(number: int) -> bytes:
    """A turn of one of three conversations; each has a long prefix of its own."""
    text = f"conversation {number % 3} " * 300
    return chat(messages=[{"role": "user", "content": text}, {"role": "user", "content": number}])


async def closed_loop(router: Router, body: Body, first: int, count: int = BURST) -> int:
    """Send a burst, `AT_ONCE` requests at a time. Returns how many failed."""
    numbers = iter(range(first, first + count))

    async def client() -> int:
        return sum([await fails(router, body(number)) for number in numbers])

    return sum(await asyncio.gather(*[client() for _ in range(AT_ONCE)]))


async def open_loop(router: Router, body: Body, first: int, count: int = BURST) -> int:
    """Send a burst at a fixed rate, whether or not there are answers. Returns how many failed."""
    asks = []
    for number in range(first, first + count):
        asks.append(asyncio.create_task(fails(router, body(number))))
        await asyncio.sleep(WORK_S / 4)
    return sum([await ask for ask in asks])


async def fails(router: Router, data: bytes) -> bool:
    answer = await router.ask(data)
    return answer.status != 200 or "choices" not in answer.json()


def replica_of(router: Router, index: int) -> dict[str, Any]:
    return dict(router.app.replicas()[index])


async def is_named(router: Router, index: int, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the log and a metric show that the replica was set aside."""
    name = f"r{index}"
    samples = await scrape(router.app.admin_port)
    key = ("hedgerow_replica_ejections_total", frozenset({("replica", name)}))
    return bool(samples.get(key)) and "replica ejected" in caplog.messages


CELLS = [
    *[(kind, count, closed_loop, question, "") for kind in SICK for count in (2, 6)],
    *[("401", count, closed_loop, question, "token") for count in (2, 3)],
    ("401", 2, closed_loop, question, "credential"),
    ("401", 6, open_loop, question, "credential"),
    ("401", 3, open_loop, question, ""),
    ("404", 2, open_loop, question, ""),
    ("500", 3, open_loop, question, "token"),
    *[(kind, 3, closed_loop, turn, "") for kind in ("401", "400", "500")],
]


@pytest.mark.parametrize(("kind", "count", "loop", "body", "credential"), CELLS)
@virtual_scenario
async def test_it_is_set_aside_and_returns(
    kind: str,
    count: int,
    loop: Any,
    body: Body,
    credential: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engines = [Engine() for _ in range(count)]
    own: dict[str, Any] = {}
    if credential == "credential":
        own["credential"] = Credential(token="sk-own-0123456789")
    entries = tuple(
        Replica(url=each.server.url, id=f"r{n}", **own) for n, each in enumerate(engines)
    )
    upstream = Upstream(token="sk-fleet-0123456789") if credential == "token" else Upstream()
    servers = [each.server for each in engines]
    async with running(*servers, replicas=entries, upstream=upstream) as router:
        assert await closed_loop(router, body, 0) == 0
        # The replica that works most, so that conversations are bound to it.
        place = max(range(count), key=lambda n: len(servers[n].requests))
        engines[place].sick = SICK[kind]
        sent = BURST
        assert await loop(router, body, sent) <= FIRST_MOST
        later = 0
        while not await is_named(router, place, caplog):
            sent += BURST
            later += await loop(router, body, sent)
            assert later <= LATER_MOST
            assert sent < 100 * BURST, "the replica is not named"
        assert await loop(router, body, sent + BURST) <= LATER_MOST
        engines[place].sick = b""
        sent += BURST
        before = replica_of(router, place)["served"]
        while replica_of(router, place)["served"] == before:
            sent += AT_ONCE
            await asyncio.sleep(1.0)
            assert await loop(router, body, sent, AT_ONCE) == 0
        await eventually(lambda: replica_of(router, place)["breaker"] == "closed", "it is back")
