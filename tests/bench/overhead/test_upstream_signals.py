"""The upstream of the overhead bench reports an engine's metrics, so that signals are measured."""

from router.lab.overhead.processes import Orderly
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import running, scenario


@scenario
async def test_a_router_polls_the_upstream_as_it_does_an_engine() -> None:
    with Orderly("bench.overhead.upstream", "2") as process:
        urls = [f"http://127.0.0.1:{port}" for port in process.read()]
        async with running(*urls) as router:
            replicas = list(router.app.parts.fleet.replicas.values())
            await eventually(lambda: all(r.reports.at for r in replicas), "metrics were read")
            for replica in replicas:
                assert replica.engine == "vllm"
                assert replica.reports.signals.running == 0
                assert replica.reports.signals.kv_usage == 0.0
                assert replica.reports.signals.slots is None
            assert (await router.ask(chat(model="bench"))).status == 200
            await eventually(
                lambda: sum(r.reports.signals.prompt_tokens or 0 for r in replicas) > 0,
                "it was counted",
            )
