"""One of two engines is killed under load, and later comes back.

Effects at clients: a stream that had already delivered text ends with an error event and without
its end. Every other request is answered by the other engine.
"""

import asyncio

import httpx

from router.core.errors import Reason
from tests.engine.loads import bodies
from tests.engine.loads.load import CHAT, Load, Outcome, ask
from tests.engine.machine.fleet import SLOTS, Engine, Engines, Hedgerow
from tests.engine.machine.processes import eventually

# More than the slots of both engines: requests without a token always wait in either engine.
CLIENTS = 3 * SLOTS
SHORT, LONG = 30, 3800  # output tokens of a short and of a long answer
LONG_STREAMS = 4
WHOLE, WHOLE_ANSWERS = 300, 12  # output tokens of a whole answer, number of such requests
# Seconds from an engine's readiness to its first request: probes, ejection time.
BACK_WITHIN_S = 60.0
TIMEOUT_S = 60.0


def test_a_killed_engine_costs_only_what_had_begun(engines: Engines, hedgerow: Hedgerow) -> None:
    lost, survivor = engines
    short, long = asyncio.run(lose_one_under_load(lost, hedgerow))

    unexpected = [one for one in short if not (one.is_whole or one.is_visibly_cut)]
    assert unexpected == [], f"{len(unexpected)} of {len(short)}"

    cut = [one for one in long if one.is_visibly_cut]
    going_on = [one for one in long if one.error is None and not one.broken]
    assert len(cut) + len(going_on) == LONG_STREAMS, long
    assert cut, "no long stream was on the engine that was killed"
    assert going_on, "no long stream was on the survivor"
    reasons = {str(reason) for reason in Reason}
    assert all(one.error is not None and one.error["code"] in reasons for one in cut), cut

    assert_survivor_serves(survivor, hedgerow, 20)
    lost.start()
    lost.wait_until_ready()
    assert_comes_back(lost, hedgerow)


def test_unstreamed_requests_are_repeated_at_another_engine(
    engines: Engines, hedgerow: Hedgerow
) -> None:
    """All requests are sent at once, on new connections, with few other running requests.

    A retry budget that is a share of the running requests must not leave any of them with an error.
    """
    lost, survivor = engines
    before = survivor.state().finished

    async def lose_one() -> list[Outcome]:
        async with connect(hedgerow) as http:
            outcomes = [Outcome(stream=False, tokens=WHOLE) for _ in range(WHOLE_ANSWERS)]
            asked = [
                asyncio.create_task(ask(http, bodies.chat(f"whole {n}", WHOLE), outcome))
                for n, outcome in enumerate(outcomes)
            ]
            half = WHOLE_ANSWERS // 2
            await asyncio.to_thread(
                eventually, lambda: lost.state().running == half, TIMEOUT_S, f"{half} at each"
            )
            await asyncio.to_thread(lost.kill)
            await asyncio.gather(*asked)
            return outcomes

    outcomes = asyncio.run(lose_one())
    failed = [one for one in outcomes if not one.is_whole]
    assert failed == [], f"{len(failed)} of {WHOLE_ANSWERS}"
    assert survivor.state().finished - before == WHOLE_ANSWERS


def connect(hedgerow: Hedgerow) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=hedgerow.url, timeout=TIMEOUT_S, limits=limits)


async def lose_one_under_load(
    lost: Engine, hedgerow: Hedgerow
) -> tuple[list[Outcome], list[Outcome]]:
    """The outcomes of all short requests, and of the long streams up to their break."""
    async with connect(hedgerow) as http:
        long = [Outcome(stream=True, tokens=LONG) for _ in range(LONG_STREAMS)]
        streams = []
        for number, outcome in enumerate(long):
            # Streams start one after the other, so that the balancer sees each before it places the
            # next.
            began = asyncio.Event()
            body = bodies.chat(f"long {number}", LONG)
            streams.append(asyncio.create_task(ask(http, body, outcome, began)))
            async with asyncio.timeout(TIMEOUT_S):
                await began.wait()

        load = Load(http, SHORT)
        clients = [asyncio.create_task(load.client(number)) for number in range(CLIENTS)]
        await load.ended(2 * CLIENTS)
        await asyncio.to_thread(lost.kill)
        await load.ended(4 * CLIENTS)
        load.stop()
        await asyncio.gather(*clients)
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        return load.outcomes, long


def assert_survivor_serves(survivor: Engine, hedgerow: Hedgerow, requests: int) -> None:
    survivor.wait_until_idle(TIMEOUT_S)
    before = survivor.state().finished
    for number in range(requests):
        body = bodies.chat(f"after the loss {number}", 2)
        answer = httpx.post(f"{hedgerow.url}{CHAT}", json=body, timeout=TIMEOUT_S)
        assert answer.status_code == 200, answer.text
    assert survivor.state().finished - before == requests


def assert_comes_back(returned: Engine, hedgerow: Hedgerow) -> None:
    """The restarted engine's count of requests starts at zero; only Hedgerow can raise it."""

    def gets_a_request() -> bool:
        body = bodies.chat("is it back", 2)
        answer = httpx.post(f"{hedgerow.url}{CHAT}", json=body, timeout=TIMEOUT_S)
        assert answer.status_code == 200, answer.text
        return returned.state().finished > 0

    eventually(gets_a_request, BACK_WITHIN_S, f"{returned.name} serves again")
