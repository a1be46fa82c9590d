"""The capacity reserved for a class follows the fleet: a lost replica reduces it until it
returns.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from router.admission.queue import Queue as AdmissionQueue
from router.config.model import BatchClass, Classes, Reservations
from router.core.urgency import HIGH
from tests.addons.needed import needs
from tests.admission.extras import held_tokens, used_tokens
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.peer import WAIT_S
from tests.harness.queueing import queue, send, waiting
from tests.harness.replica import eventually
from tests.harness.running import Router, running, virtual_scenario

BLOCKS = 5000
TOKENS = BLOCKS * 16  # tokens of one engine's KV cache
SHARE = 0.3  # default reserved share of class high


def pool(router: Router) -> AdmissionQueue:
    driver = router.app.parts.queue
    assert driver is not None
    (only,) = driver.pools.queues
    return only


def prompt(tokens: float) -> dict[str, Any]:
    """The members of a body with a prompt of so many tokens and a long answer."""
    content = "abc " * int(tokens)
    return {"messages": [{"role": "user", "content": content}], "max_tokens": TOKENS // 4}


@needs("reservations")
@virtual_scenario
async def test_shares_shrink_with_the_fleet_and_come_back() -> None:
    sizes: dict[str, Any] = {
        "num_blocks": BLOCKS,
        "max_model_len": TOKENS,
        "speed": 1.0,
        "max_num_seqs": 4,
    }
    classes = Classes(batch=BatchClass(waiting=3, prefill_tokens=8192, kv_usage=1.0))
    rules = queue(order="policy", reservations=Reservations(enabled=True))
    async with AsyncExitStack() as stack:
        stays = await stack.enter_async_context(emulated("vllm", **sizes))
        dies = emulated("vllm", **sizes)
        lost = await dies.__aenter__()
        router = await stack.enter_async_context(
            running(
                stays.url,
                lost.url,
                queue=rules,
                classes=classes,
                polling={"interval_s": 0.05},
                health={"interval_s": 0.05, "fall": 1, "eject_share": 0.0},
                policy="least_load",
            )
        )
        only, fleet = pool(router), router.app.parts.fleet
        await eventually(
            lambda: all(r.reports.signals.kv_tokens for r in fleet.replicas.values()),
            "both told a size",
        )
        # Class high wants more than its share, and its demand is remembered for a minute.
        eager = await send(router, "eager", queued=False, priority="high", **prompt(0.7 * TOKENS))
        eager.close()
        await eventually(lambda: not used_tokens(only, HIGH), "it has left")

        async def held() -> float:
            """The capacity reserved for high, after the queue's next update."""
            assert (await router.ask(chat(max_tokens=1))).status == 200
            return held_tokens(only, HIGH)

        async def becomes(tokens: float) -> None:
            try:
                async with asyncio.timeout(WAIT_S):
                    while await held() != pytest.approx(tokens):
                        pass
            except TimeoutError:
                raise AssertionError(f"{await held()} tokens are kept, not {tokens}") from None

        await becomes(SHARE * 2 * TOKENS)
        port = int(lost.url.rpartition(":")[2])
        await dies.__aexit__(None, None, None)
        await eventually(lambda: len(fleet.serving.ready) == 1, "one is down")
        await becomes(SHARE * TOKENS)

        # Batch gets the remaining capacity, and no more, for any number of requests.
        half = {"priority": "batch", "ignore_eos": True, **prompt(0.4 * TOKENS)}
        runs = await send(router, "runs", queued=False, **half)
        waits = await send(router, "waits", **half)
        assert waiting(router) == 1
        assert (await router.ask(chat(priority="high", max_tokens=1))).status == 200

        # The other engine is back: there is room for the waiting requests.
        again = await stack.enter_async_context(emulated("vllm", port=port, **sizes))
        await eventually(lambda: len(fleet.serving.ready) == 2, "it is up again")
        await eventually(lambda: waiting(router) == 0, "batch may borrow again")
        await becomes(SHARE * 2 * TOKENS)
        assert again.engine.stats.asked + stays.engine.stats.asked > 0
        for client in (runs, waits):
            client.close()
