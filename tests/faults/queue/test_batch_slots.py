"""Class batch uses at most its share of the slots, through reloads and clients that leave."""

from __future__ import annotations

from router.config.model import BatchClass, Classes, Queue
from router.fleet.utilisation import slots_of
from tests.harness.client import RawClient
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.queueing import waiting
from tests.harness.replica import eventually
from tests.harness.running import Router, running, virtual_scenario

SLOTS = 4


def share(slots: float) -> Classes:
    return Classes(batch=BatchClass(slots=slots))


async def begun(router: Router, priority: str) -> RawClient:
    """A stream that has delivered content and continues for minutes."""
    client = await router.client()
    body = {"max_tokens": 50_000, "ignore_eos": True, "priority": priority}
    await client.send(chat(stream=True, **body))
    await client.recv_until(b"data: ")
    return client


async def waits(router: Router) -> RawClient:
    before = waiting(router)
    client = await router.send(chat(stream=True, max_tokens=5, priority="batch"))
    await eventually(lambda: waiting(router) == before + 1, "it waits")
    return client


@virtual_scenario
async def test_the_other_slots_stay_free_for_the_other_classes() -> None:
    async with (
        emulated("sglang", speed=1.0, max_num_seqs=SLOTS) as engine,
        running(
            engine.url,
            queue=Queue(enabled=True),
            classes=share(0.5),
            polling={"interval_s": 0.1},
        ) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        await eventually(lambda: slots_of(replica) == SLOTS, "the slots are known")
        first, second = [await begun(router, "batch") for _ in range(2)]
        late = await waits(router)
        others = [await begun(router, "normal") for _ in range(2)]
        for client in others:  # two slots are free again
            client.close()
        await eventually(lambda: replica.inflight == 2, "they have left")
        assert waiting(router) == 1
        first.close()
        assert (await late.recv_response()).status == 200
        third = await begun(router, "batch")
        router.change(classes=share(0.25))  # a rush is near
        await router.app.reload()
        second.close()
        await eventually(lambda: replica.inflight == 1, "one batch request runs")
        last = await waits(router)
        router.change(classes=share(1.0))
        await router.app.reload()
        assert (await last.recv_response()).status == 200
        third.close()
