"""Engines with full slots let requests wait while they work for others: no engine is ejected.

Each stream of the second round waits many times as long as a usual first token.
"""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.running import Router, running, scenario

# A round of 100 tokens takes about two seconds, four times the wait that raises suspicion.
ENGINE = {"profile": "realistic", "speed": 2.0, "max_num_seqs": 4}
HEALTH = {"suspect_min_s": 0.5, "suspect_factor": 2.0, "eject_base_s": 0.5, "slow_start_s": 0.0}
COUNT, ROUNDS, SLOTS = 2, 2, 4


def body(tokens: int, user: str) -> bytes:
    return chat(stream=True, max_tokens=tokens, ignore_eos=True, user=user)


async def ask(router: Router, tokens: int, user: str) -> int:
    return (await router.ask(body(tokens, user))).status


@pytest.mark.parametrize("interval_s", [0.0, 0.1], ids=["not polled", "polled"])
@scenario
async def test_streams_that_wait_for_a_slot(interval_s: float) -> None:
    async with AsyncExitStack() as stack:
        urls = [
            (await stack.enter_async_context(emulated("vllm", **ENGINE))).url for _ in range(COUNT)
        ]
        router = await stack.enter_async_context(
            running(*urls, health=HEALTH, polling={"interval_s": interval_s}, policy="kv_aware")
        )
        # Light load: the router learns the usual time to a first token.
        for number in range(6 * COUNT):
            assert await ask(router, 2, f"short {number}") == 200
        asks = [ask(router, 100, f"long {n}") for n in range(ROUNDS * SLOTS * COUNT)]
        assert set(await asyncio.gather(*asks)) == {200}
        replicas = router.app.parts.fleet.replicas.values()
        assert {r.id: r.health.ejections for r in replicas if r.health.ejections} == {}
