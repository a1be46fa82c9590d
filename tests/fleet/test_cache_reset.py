"""What an engine's prefix cache no longer holds is not believed to be there."""

from __future__ import annotations

from router.core.lease import poll_begins
from router.fleet.replica import MISSES, Replica
from router.fleet.signals import Signals
from tests.fleet.helpers import Table
from tests.harness.emulated import emulated
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import running, scenario

BLOCKS = (11, 12, 13)


class Known(Table):
    """A fleet of one replica that holds a prefix."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = self.add("a")
        self.now = 100.0
        self.hold()

    def hold(self) -> None:
        self.fleet.knowledge.sent(self.replica, BLOCKS, 0)
        self.fleet.knowledge.begun(self.replica, BLOCKS, 0)

    @property
    def held(self) -> int:
        return self.fleet.knowledge.prefixes.match(BLOCKS).get(self.replica, 0)

    def poll(self, **signals: object) -> Replica:
        self.now += 1.0
        number = poll_begins(self.replica, self.now)
        told = Signals(running=0, waiting=0, **signals)  # type: ignore[arg-type]
        self.fleet.observed(self.replica, told, number, self.now)
        return self.replica


@scenario
async def test_a_sleeping_engine_holds_nothing() -> None:
    table = Known()
    table.poll()
    assert table.held == 3
    table.poll(asleep=True)
    assert table.held == 0
    table.poll()
    assert table.held == 0
    table.close()


@scenario
async def test_requests_that_should_have_hit_and_did_not_tell_of_a_reset() -> None:
    table = Known()
    replica = table.poll(cache_hits=1000)
    replica.expected_hits += MISSES
    table.poll(cache_hits=1000)
    assert table.held == 3, "the counters may lag"
    table.poll(cache_hits=1000)
    assert table.held == 0
    assert ("cache_reset", "a") in table.events
    table.hold()
    table.poll(cache_hits=1000)
    table.poll(cache_hits=1000)
    assert table.held == 3, "nothing new speaks against it"
    table.close()


@scenario
async def test_a_hit_a_few_misses_and_an_engine_without_a_cache_tell_of_no_reset() -> None:
    table = Known()
    replica = table.poll(cache_hits=0)
    for hits in (0, 0, 0, 5, 6, 7):
        replica.expected_hits += MISSES
        table.poll(cache_hits=hits)
    replica.expected_hits += MISSES - 1
    for _ in range(5):
        table.poll(cache_hits=7)
    for _ in range(5):
        replica.expected_hits += MISSES
        table.poll()  # it does not say
    assert table.held == 3
    table.close()


@scenario
async def test_an_emulated_engine_that_slept_is_asked_as_if_it_were_new() -> None:
    prompt = "the same long beginning of every conversation " * 60
    async with (
        emulated("vllm") as engine,
        running(engine.url, polling={"interval_s": 0.05}) as router,
    ):
        fleet = router.app.parts.fleet
        (replica,) = fleet.replicas.values()
        client = await router.client()
        await client.send(chat(messages=[{"role": "user", "content": prompt}], max_tokens=1))
        assert (await client.recv_response()).status == 200
        prefixes = fleet.knowledge.prefixes
        assert prefixes.stats.entries > 0
        engine.engine.sleep(1)
        await eventually(lambda: replica.signals.asleep, "it sleeps")
        engine.engine.sleep(0)
        await eventually(lambda: not replica.signals.asleep, "it is awake")
        await eventually(lambda: prefixes.stats.entries == 0, "nothing is held")
