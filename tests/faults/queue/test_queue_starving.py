"""Long waits are promoted by time alone, without any request starting or ending."""

from __future__ import annotations

import asyncio

from router.config.model import BatchClass, Classes, QueueGates
from router.core.urgency import BATCH
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.queueing import ONE, Turnstile, counts, queue, send, waiting
from tests.harness.replica import eventually
from tests.harness.running import running, virtual_scenario


@virtual_scenario
async def test_a_waiter_is_promoted_by_the_clock_without_any_release() -> None:
    """A starving class is served only where no other request waits. Here another request waits;
    after its longest wait, the starving request counts as class normal.
    """
    rules = queue(batch_becomes_normal_after_s=0.0, gates=QueueGates(prefill_tokens=0))
    classes = Classes(batch=BatchClass(starvation_s=1.0))
    async with (
        emulated("vllm", max_num_seqs=1, speed=1.0) as engine,
        running(engine.url, queue=rules, classes=classes, polling={"interval_s": 0.05}) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: replica.reports.signals.waiting is not None, "it is polled")
        long = [
            await send(router, tag, queued=False, max_tokens=60_000, ignore_eos=True)
            for tag in ("runs", "waits")
        ]
        await eventually(lambda: replica.reports.signals.waiting == 1, "one waits at the engine")
        await eventually(lambda: replica.learned.capacity.slots == 1, "and it was seen to be full")
        batch = await send(router, "batch", priority="batch")
        await eventually(lambda: engine.engine.stats.asked == 3, "it is sent all the same")
        assert counts(router, "promoted")[BATCH] == 1
        assert counts(router, "granted")[BATCH] == 1
        assert waiting(router) == 0
        assert replica.inflight == 3, "nothing was released"
        for client in (*long, batch):
            client.close()


@virtual_scenario
async def test_batch_has_its_turn_while_urgent_ones_never_end() -> None:
    """More urgent requests always wait, and the limit on the wait of a batch request still
    holds.
    """
    turnstile = Turnstile()
    classes = Classes(batch=BatchClass(starvation_s=0.4))
    rules = queue(order="strict", batch_becomes_normal_after_s=0.0)
    async with running(turnstile, replica=ONE, queue=rules, classes=classes) as router:
        clients = [await send(router, "first", queued=False)]
        clients += [await send(router, "high", priority="high") for _ in range(3)]
        clients.append(await send(router, "batch", priority="batch"))
        number = 0
        while "batch" not in turnstile.tags:
            number += 1
            assert number < 1000
            clients.append(await router.client())
            await clients[-1].send(chat(tag="high", priority="high"))
            turnstile.open()
            seen = len(turnstile.tags)
            await eventually(lambda s=seen: len(turnstile.tags) > s, "the next is sent")  # type: ignore[misc]
            await asyncio.sleep(0.01)
        assert counts(router, "promoted")[BATCH] == 1
        assert waiting(router) >= 3, "more urgent ones wait, and waited"
        turnstile.open(len(clients))
        for client in clients:
            assert (await client.recv_response()).status == 200
