"""After the reset of an engine's prefix cache, the index forgets its blocks."""

from router.core.lease import poll_begins
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from router.fleet.state.reports import MISSES
from tests.fleet.helpers import Table

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

    def miss(self, requests: int) -> None:
        """`requests` requests that should have hit the cache are sent and end."""
        self.now += 0.1
        for _ in range(requests):
            self.replica.reports.should_have_hit(self.now)

    def poll(self, **signals: object) -> Replica:
        self.now += 1.0
        number = poll_begins(self.replica, self.now)
        told = Signals(running=0, waiting=0, **signals)  # type: ignore[arg-type]
        self.fleet.polls.observed(self.replica, told, number, self.now)
        return self.replica


def test_a_sleeping_engine_holds_nothing() -> None:
    table = Known()
    table.poll()
    assert table.held == 3
    table.poll(asleep=True)
    assert table.held == 0
    table.poll()
    assert table.held == 0


def test_unexpected_misses_indicate_a_cache_reset() -> None:
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


def test_a_hit_few_misses_or_no_cache_indicate_no_reset() -> None:
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
        table.poll()  # the engine does not report cache hits
    assert table.held == 3
