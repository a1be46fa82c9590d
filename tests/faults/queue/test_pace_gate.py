"""The gate closed by an engine's slow token pace opens when the pace recovers, under any load."""

from __future__ import annotations

from typing import Any

from router.config.model import Classes, ClassSettings, Queue, QueueGates
from router.lab.emulator.http.faults import NONE, Faults
from tests.harness.client import RawClient
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.queueing import waiting
from tests.harness.replica import eventually
from tests.harness.running import Router, running, virtual_scenario

BOUND_S = 0.05  # the profile `fast` needs 0.012 s per token
SLOW = Faults(slow=20.0)


def queue(**rules: Any) -> Queue:
    return Queue(enabled=True, **rules)


async def begun(router: Router, **body: Any) -> RawClient:
    """A stream that has delivered content and continues for minutes."""
    client = await router.send(chat(stream=True, max_tokens=50_000, ignore_eos=True, **body))
    await client.recv_until(b"data: ")
    return client


async def waits(router: Router, **body: Any) -> RawClient:
    before = waiting(router)
    client = await router.send(chat(max_tokens=1, **body))
    await eventually(lambda: waiting(router) == before + 1, "it waits")
    return client


@virtual_scenario
async def test_the_gate_opens_while_the_streams_that_closed_it_go_on() -> None:
    rules = queue(gates=QueueGates(tpot_s=BOUND_S))
    async with (
        emulated("vllm", speed=1.0) as engine,
        running(engine.url, queue=rules, polling={"interval_s": 0.1}) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        engine.engine.set_faults(SLOW)
        await router.ask(
            chat(stream=True, max_tokens=5, ignore_eos=True)
        )  # the replica's token pace is known, and too slow
        long = await begun(router)
        await eventually(lambda: (replica.cadence_s or 0.0) > BOUND_S, "the pace is bad")
        late = await waits(router)
        engine.engine.set_faults(NONE)
        assert (await late.recv_response()).status == 200
        assert replica.inflight == 1, "the long stream goes on"
        long.close()
        await eventually(lambda: replica.cadence_s is None, "nothing runs: nothing is known")


@virtual_scenario
async def test_a_bound_of_one_class_closes_nothing_to_the_others() -> None:
    classes = Classes(normal=ClassSettings(tpot_s=BOUND_S))
    async with (
        emulated("vllm", speed=1.0, faults=SLOW) as engine,
        running(engine.url, queue=queue(), classes=classes, polling={"interval_s": 0.1}) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        long = await begun(router)
        await eventually(lambda: (replica.cadence_s or 0.0) > BOUND_S, "the pace is bad")
        late = await waits(router)
        assert (await router.ask(chat(max_tokens=1, priority="high"))).status == 200
        assert waiting(router) == 1
        for client in (long, late):
            client.close()


@virtual_scenario
async def test_a_client_that_does_not_read_says_nothing_of_the_pace() -> None:
    rules = queue(gates=QueueGates(tpot_s=BOUND_S))
    async with (
        emulated("vllm", speed=1.0) as engine,
        running(engine.url, queue=rules, polling={"interval_s": 0.1}) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        long = await begun(router)
        await eventually(lambda: replica.cadence_s is not None, "the pace is known")
        (exchange,) = router.app.parts.dispatcher.exchanges
        exchange.client_paused()
        await eventually(lambda: replica.cadence_s is None, "it does not count")
        exchange.client_resumed()
        await eventually(lambda: replica.cadence_s is not None, "it counts again")
        assert (replica.cadence_s or 0.0) < BOUND_S
        long.close()
