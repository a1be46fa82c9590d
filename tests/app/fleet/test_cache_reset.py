"""The reset of an emulated engine's prefix cache, as its polls show it to a router."""

from router.fleet.state.reports import MISSES
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import running, scenario

PROMPT = "the same long beginning of every conversation " * 60


@scenario
async def test_requests_that_outlive_their_hit_tell_of_no_reset() -> None:
    """Engines count a hit when a request begins, and a burst of long answers ends much later."""
    async with (
        emulated("vllm") as engine,
        running(engine.url, polling={"interval_s": 0.05}) as router,
    ):
        (replica,) = router.app.parts.fleet.replicas.values()
        for tokens in (1, 40):
            asked = chat(messages=[{"role": "user", "content": PROMPT}], max_tokens=tokens)
            clients = [await router.client() for _ in range(MISSES + 1)]
            for client in clients:
                await client.send(asked)
            for client in clients:
                assert (await client.recv_response()).status == 200
        for _ in range(3):
            polled = replica.reports.at
            await eventually(lambda polled=polled: replica.reports.at > polled, "another poll")
        assert router.app.parts.fleet.knowledge.prefixes.stats.entries > 0


@scenario
async def test_an_emulated_engine_that_slept_is_asked_as_if_it_were_new() -> None:
    async with (
        emulated("vllm") as engine,
        running(engine.url, polling={"interval_s": 0.05}) as router,
    ):
        fleet = router.app.parts.fleet
        (replica,) = fleet.replicas.values()
        client = await router.client()
        await client.send(chat(messages=[{"role": "user", "content": PROMPT}], max_tokens=1))
        assert (await client.recv_response()).status == 200
        prefixes = fleet.knowledge.prefixes
        assert prefixes.stats.entries > 0
        engine.engine.sleep(1)
        await eventually(lambda: replica.reports.signals.asleep, "it sleeps")
        engine.engine.sleep(0)
        await eventually(lambda: not replica.reports.signals.asleep, "it is awake")
        await eventually(lambda: prefixes.stats.entries == 0, "nothing is held")
