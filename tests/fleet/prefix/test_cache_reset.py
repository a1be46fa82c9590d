"""After the reset of an engine's prefix cache, the index forgets its blocks."""

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
PROMPT = "the same long beginning of every conversation " * 60


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

    def miss(self, requests: int) -> None:
        """`requests` requests that should have hit the cache are sent and end."""
        self.now += 0.1
        for _ in range(requests):
            self.replica.should_have_hit(self.now)

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
async def test_unexpected_misses_indicate_a_cache_reset() -> None:
    table = Known()
    table.poll(cache_hits=1000)
    table.miss(MISSES)
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
async def test_a_hit_few_misses_or_no_cache_indicate_no_reset() -> None:
    table = Known()
    table.poll(cache_hits=0)
    for hits in (0, 0, 0, 5, 6, 7):
        table.miss(MISSES)
        table.poll(cache_hits=hits)
    table.miss(MISSES - 1)
    for _ in range(5):
        table.poll(cache_hits=7)
    for _ in range(5):
        table.miss(MISSES)
        table.poll()  # it does not report it
    assert table.held == 3
    table.close()


@scenario
async def test_requests_that_outlive_their_hit_indicate_no_reset() -> None:
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
            polled = replica.signals_at
            await eventually(lambda polled=polled: replica.signals_at > polled, "another poll")
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
        await eventually(lambda: replica.signals.asleep, "it sleeps")
        engine.engine.sleep(0)
        await eventually(lambda: not replica.signals.asleep, "it is awake")
        await eventually(lambda: prefixes.stats.entries == 0, "nothing is held")
