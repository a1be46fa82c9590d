"""A request that waits in its engine's queue is served in the order of arrival.

An engine that schedules by priority compares numbers of requests that were sent at different times.
While the router's queue is never empty, each later request has waited longer there than the one
that the engine already has. If the wait went into the number, the engine would serve every later
request first.
"""

import asyncio
from typing import Any

import pytest

from router.config.model import Queue, QueueGates
from tests.harness.client import RawClient
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.running import running, virtual_scenario

SLOTS = 4
CROWD = 40  # clients that send again as soon as they are answered
SERVED = 140  # requests in all
# Upper bound: the slots and the requests waiting at the engine, for the length of one request.
MOST_OVERTAKEN = 12


@pytest.mark.parametrize(
    ("persona", "metrics", "becomes_normal_s"),
    [
        ("vllm", True, 600.0),
        # Waits of seconds are below the resolution of SGLang's numbers: here classes differ by a
        # second.
        ("sglang", True, 2.0),
        ("sglang", False, 2.0),
    ],
)
@virtual_scenario
async def test_an_early_request_is_not_overtaken_for_ever(
    persona: str, metrics: bool, becomes_normal_s: float
) -> None:
    settings: dict[str, Any] = {"max_num_seqs": SLOTS, "speed": 6.0, "metrics": metrics}
    async with (
        emulated(persona, **settings) as engine,
        running(
            engine.url,
            replica={"engine": persona},
            polling={"interval_s": 0.1},
            queue=Queue(
                batch_becomes_normal_after_s=becomes_normal_s,
                gates=QueueGates(waiting=3, prefill_tokens=0),
            ),
        ) as router,
    ):
        driver = router.app.parts.queue
        assert driver is not None
        ended: list[int] = []
        sent = 0

        async def send(client: RawClient) -> int:
            nonlocal sent
            number, sent = sent, sent + 1
            # Lengths differ, so that one slot becomes free at a time.
            await client.send(chat(max_tokens=40 + 7 * (number % 5), stream=True))
            return number

        async def go_on(client: RawClient, number: int) -> None:
            assert (await client.recv_response("POST")).status == 200
            ended.append(number)
            while sent < SERVED:
                number = await send(client)
                assert (await client.recv_response("POST")).status == 200
                ended.append(number)

        clients = [await router.client() for _ in range(CROWD)]
        first = [(client, await send(client)) for client in clients]
        async with asyncio.TaskGroup() as group:
            for client, number in first:
                group.create_task(go_on(client, number))
        assert sum(driver.pools.queues[0].counts.queued) > SERVED // 2, "the queue was empty"
        overtaken = [ended.index(number) - number for number in range(sent)]
        assert max(overtaken) <= MOST_OVERTAKEN
