"""The time to a first content counts per attempt: no attempt is charged for another's time."""

import asyncio
import json

import pytest

from router.config.model import Hedging
from router.core.errors import Reason
from tests.harness.behaviours import hang
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, completion, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import assert_error, running, virtual_scenario

LIMIT_S = 1.5
TIMEOUTS = {"first_token_s": LIMIT_S, "whole_s": LIMIT_S}
MOST_OF_IT_S = 0.85
FIRM = {"eject_after": 1, "eject_share": 1.0}


async def resets_late(connection: ReplicaConnection) -> None:
    """Let a request wait for most of its time, then reset."""
    await connection.recv_request()
    await asyncio.sleep(MOST_OF_IT_S)
    connection.rst()


async def answers_late(connection: ReplicaConnection) -> None:
    """Answer after most of the time to a first content, streamed or not."""
    while asked := await connection.recv_request():
        await asyncio.sleep(MOST_OF_IT_S)
        if json.loads(asked.body).get("stream"):
            await connection.send(SSE_HEAD, chunk(token()), chunk(DONE), LAST_CHUNK)
        else:
            await connection.send(completion())


@pytest.mark.parametrize("stream", [False, True])
@virtual_scenario
async def test_a_retry_has_all_of_it(stream: bool) -> None:
    rules = {"policy": "round_robin", "retry": {"backoff_s": 0.0}, "timeouts": TIMEOUTS}
    async with running(resets_late, answers_late, **rules) as router:
        assert (await router.ask(chat(stream=stream))).status == 200
        line = (await router.log(1))[-1]
        assert (line["attempts"], line["reason"]) == (2, "ok")
        assert line["duration_ms"] > 1000 * LIMIT_S


@virtual_scenario
async def test_a_copy_goes_on_when_the_first_one_times_out() -> None:
    hedging = Hedging(policy="fixed", options={"delay_s": MOST_OF_IT_S}, budget=1.0)
    rules = {"policy": "round_robin", "timeouts": TIMEOUTS, "hedging": hedging, "health": FIRM}
    async with running(hang, answers_late, **rules) as router:
        got = await router.ask(chat("x-priority: high"))
        assert got.status == 200
        line = (await router.log(1))[-1]
        assert line["attempts"] == 2
        fleet = router.app.parts.fleet
        first, second = fleet.replicas["r0"], fleet.replicas["r1"]
        assert first.health.failures == 1
        assert second.health.failures == 0


@virtual_scenario
async def test_both_hang_and_only_the_time_of_each_counts() -> None:
    hedging = Hedging(policy="fixed", options={"delay_s": MOST_OF_IT_S}, budget=1.0)
    rules = {"policy": "round_robin", "timeouts": TIMEOUTS, "hedging": hedging}
    async with running(hang, hang, **rules) as router:
        assert_error(await router.ask(chat("x-priority: high")), Reason.WHOLE_TIMEOUT)
        line = (await router.log(1))[-1]
        assert line["attempts"] == 2
        assert line["duration_ms"] > 1000 * (LIMIT_S + MOST_OF_IT_S) - 1
