"""TensorRT-LLM's Prometheus gauges change only when a request ends.

If the router trusted these gauges, an engine whose last page showed a queue would never get a
request again.
"""

from urllib.parse import urlsplit

from tests.harness.client import RawClient
from tests.harness.emulated import Emulated, emulated
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import running, virtual_scenario


async def straight(engine: Emulated, **body: object) -> RawClient:
    """A request sent directly to the engine."""
    client = await RawClient.connect(urlsplit(engine.url).port or 0)
    await client.send(chat(**{"ignore_eos": True, **body}))
    return client


@virtual_scenario
async def test_a_queue_that_vanishes_from_the_gauges_blocks_no_request() -> None:
    """The other clients have left, and no request ends that would update the gauges."""
    async with (
        emulated("trtllm", max_num_seqs=1, speed=1.0) as engine,
        running(engine.url, replica={"engine": "trtllm"}, polling={"interval_s": 0.05}) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        core = engine.engine.core
        first = await straight(engine, max_tokens=100)
        await eventually(lambda: core.running == 1, "one runs")
        others = [await straight(engine, max_tokens=50_000) for _ in range(5)]
        await eventually(lambda: core.waiting == 5, "others wait")
        assert (await first.recv_response()).status == 200
        await eventually(lambda: replica.foreign_waiting >= 3, "the router has heard of them")
        for client in (first, *others):
            client.close()
        await eventually(lambda: core.waiting + core.running == 0, "they have left")
        client = await router.send(chat(max_tokens=1))
        assert (await client.recv_response()).status == 200
