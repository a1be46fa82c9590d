"""Events that open a replica's circuit breaker, events that never do, and the trial that
closes it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

import pytest

from tests.faults.process.metrics import scrape
from tests.harness import kit

OFF = {"backoff_s": 0.0}
STRICT = {"eject_after": 1, "slow_start_s": 0.0}
REFUSED = {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}
BROKEN = {"error": {"message": "broken", "type": "server_error", "param": None, "code": 500}}


def breaker(router: kit.Router, index: int = 0) -> str:
    return str(router.app.replicas()[index]["breaker"])


async def metric(router: kit.Router, name: str) -> dict[str, float]:
    """Samples of one family, by the value of its only label."""
    samples = await scrape(router.app.admin_port)
    return {
        next(iter(labels))[1]: value
        for (sample, labels), value in samples.items()
        if sample == f"hedgerow_{name}" and labels
    }


# -- what never opens it ----------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 404, 408, 413, 422, 429, 499])
@kit.scenario
async def test_no_4xx_opens_it(status: int) -> None:
    refuses = kit.answer(kit.json_response(REFUSED, status))
    async with kit.running(
        refuses, kit.json_ok, health=STRICT, retry=OFF, policy="round_robin"
    ) as router:
        for _ in range(6):
            await router.ask(kit.chat())
        assert breaker(router) == "closed"
        health = router.app.parts.fleet.replicas["r0"].health
        assert (health.failures, health.ejections) == (0, 0)


@pytest.mark.parametrize("seen", [b"", b"content"], ids=["before the answer", "in its stream"])
@kit.scenario
async def test_no_client_that_leaves_opens_it(seen: bytes) -> None:
    behave = kit.stream_then_hang(kit.token("t")) if seen else kit.stream_then_hang(kit.role())
    replica = kit.HostileReplica(behave)
    async with kit.running(replica, kit.json_ok, health=STRICT, policy="round_robin") as router:
        for number in range(8):
            client = await router.send(kit.chat(stream=True))
            if number % 2 == 0:  # round robin: every second request goes to this replica
                count = number // 2 + 1
                await kit.eventually(lambda n=count: len(replica.requests) == n, "asked")  # type: ignore[misc]
                if seen:
                    await client.recv_until(seen)
            client.rst()
        await router.quiet()
        assert breaker(router) == "closed"
        assert router.app.parts.fleet.replicas["r0"].health.failures == 0


# -- what opens it ----------------------------------------------------------------------------

ERROR = kit.event({"error": {"message": "boom", "type": "InternalServerError", "code": 500}})


OPENS: dict[str, kit.Behaviour] = {
    "500": kit.answer(kit.json_response(BROKEN, 500)),
    "an error in the stream": kit.answer(
        kit.SSE_HEAD
        + kit.chunk(kit.token("t"))
        + kit.chunk(ERROR)
        + kit.chunk(kit.DONE)
        + kit.LAST_CHUNK
    ),
    "an error before any content": kit.answer(
        kit.SSE_HEAD
        + kit.chunk(kit.role())
        + kit.chunk(ERROR)
        + kit.chunk(kit.DONE)
        + kit.LAST_CHUNK
    ),
    "an empty stream": kit.answer(kit.SSE_HEAD + kit.LAST_CHUNK),
    "a reset": kit.rst_after_request,
}


@pytest.mark.parametrize("name", OPENS)
@kit.scenario
async def test_failures_in_a_row_open_it_and_others_serve(name: str) -> None:
    fails = kit.HostileReplica(OPENS[name])
    async with kit.running(
        fails, kit.json_ok, health={"eject_after": 3}, retry=OFF, policy="round_robin"
    ) as router:
        for _ in range(12):
            await router.ask(kit.chat(stream=True))
        assert breaker(router) == "open"
        assert len(fails.requests) == 3
        states = await metric(router, "replica_breaker")
        assert states == {"r0": 3.0, "r1": 0.0}
        counts = await metric(router, "breakers")
        assert counts == {"closed": 1.0, "suspect": 0.0, "half_open": 0.0, "open": 1.0}


async def behind_an_early_200(go: asyncio.Event, data: bytes, reason: str) -> list[str]:
    """Answer a stream with `data` after the router's own 200; the breakers of both replicas."""
    late = kit.answer_after(go, data)
    timeouts = {"commit_after_s": 0.05}
    async with kit.running(late, late, health=STRICT, retry=OFF, timeouts=timeouts) as router:
        client = await router.send(kit.chat(stream=True))
        await router.answers_early()
        go.set()
        assert (await client.recv_response()).complete
        (line,) = await router.log()
        assert (line["reason"], {tried[2] for tried in line["tried"]}) == (reason, {reason})
        parts = router.app.parts
        assert parts.context.hedger.times.of("m", True, monotonic()).answers == 0
        assert not any(replica.progress.first_s for replica in parts.fleet.replicas.values())
        return [breaker(router, index) for index in range(2)]


@kit.scenario
async def test_a_server_error_behind_an_early_200_opens_it() -> None:
    found = await behind_an_early_200(
        asyncio.Event(), kit.json_response(BROKEN, 500), "server_error"
    )
    assert sorted(found) == ["closed", "open"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (kit.json_response(REFUSED, 400), "replica_refused"),
        (kit.json_response(REFUSED, 429), "replica_busy"),
        (kit.completion(), "bad_response"),
        (
            kit.SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
            + kit.LAST_CHUNK,
            "bad_response",
        ),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "bad_response"),
    ],
    ids=["400", "429", "no stream", "a compressed stream", "a redirect"],
)
@kit.scenario
async def test_no_other_answer_behind_an_early_200_opens_it(data: bytes, reason: str) -> None:
    assert await behind_an_early_200(asyncio.Event(), data, reason) == ["closed", "closed"]


# -- half open --------------------------------------------------------------------------------


Reply = Callable[[kit.ReplicaConnection], Awaitable[None]]


class Fickle:
    """A replica whose answer to each request, on any connection, can be changed."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        while await connection.recv_request():
            await self.reply(connection)


def say(data: bytes) -> Reply:
    async def reply(connection: kit.ReplicaConnection) -> None:
        await connection.send(data)

    return reply


async def silence(connection: kit.ReplicaConnection) -> None:
    await connection.send(kit.SSE_HEAD, kit.chunk(kit.role()))


def seen_by(router: kit.Router) -> int:
    return sum(len(replica.requests) for replica in router.replicas)


SAYS_500 = say(kit.json_response(BROKEN, 500))


def reopen(router: kit.Router) -> None:
    """End the ejection now, so that the test need not wait ten seconds for it."""
    fleet = router.app.parts.fleet
    now = fleet.replicas["r0"].health.ejected_until = monotonic()
    fleet.on_deadline(now)


PROVES_NOTHING = {
    "400": say(kit.json_response(REFUSED, 400)),
    "429": say(kit.json_response(REFUSED, 429, "Retry-After: 0")),
    "its client left": silence,
}


@pytest.mark.parametrize("name", PROVES_NOTHING)
@kit.scenario
async def test_a_trial_that_proves_nothing_leaves_it_to_the_next_one(name: str) -> None:
    fickle = Fickle(SAYS_500)
    replica = kit.HostileReplica(fickle)
    async with kit.running(
        replica, kit.json_ok, health=STRICT, retry=OFF, policy="round_robin"
    ) as router:
        await router.ask(kit.chat())
        fickle.reply = PROVES_NOTHING[name]
        before = len(replica.requests)
        reopen(router)
        while len(replica.requests) == before:
            if name == "its client left":
                asked = seen_by(router)
                client = await router.send(kit.chat(stream=True))
                await kit.eventually(lambda n=asked: seen_by(router) > n, "asked")  # type: ignore[misc]
                client.rst()
                await router.quiet()
            else:
                await router.ask(kit.chat())
        assert breaker(router) == "half_open"
        fickle.reply = say(kit.completion())
        before = len(replica.requests)
        while len(replica.requests) == before:
            assert (await router.ask(kit.chat())).status == 200
        assert breaker(router) == "closed"
