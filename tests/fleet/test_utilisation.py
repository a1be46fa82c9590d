"""Utilisation: configured, reported or learned capacity, and unknown capacity."""

import pytest

from router.core.lease import Lease
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from router.fleet.utilisation import capacity, kv_occupancy, utilisation
from tests.fleet.helpers import Table
from tests.fleet.test_learned_capacity import polls, queue


def busy(replica: Replica, count: int) -> list[Lease]:
    return [Lease(replica) for _ in range(count)]


def test_configured_told_or_learned(table: Table) -> None:
    a, b = table.add("a"), table.add("b", max_inflight=10)
    assert (capacity(a), capacity(b)) == (None, 10)
    a.slots = b.slots = 4
    assert (capacity(a), capacity(b)) == (4, 4)
    b.slots = 64
    assert capacity(b) == 10
    a.slots = None
    polls(a.learned.capacity, *queue(6))
    assert capacity(a) == 6.0


def test_of_a_pool_it_is_all_requests_over_all_capacity(table: Table) -> None:
    a, b, c = table.add("a", max_inflight=10), table.add("b", max_inflight=30), table.add("c")
    leases = [*busy(a, 10), *busy(b, 10), *busy(c, 50)]
    assert utilisation([a]) == 1.0
    assert utilisation([a, b]) == 0.5
    assert utilisation([a, b, c]) == 0.5  # the capacity of c is unknown
    assert utilisation([c]) is None
    assert utilisation([]) is None
    for lease in leases:
        lease.release()
    assert utilisation([a, b]) == 0.0


def test_polls_teach_it_and_a_restart_ends_it(table: Table) -> None:
    a = table.add("a")
    for number in range(1, 5):
        a.polls = number
        signals = Signals(running=8, waiting=3, started_at=100.0)
        table.fleet.polls.observed(a, signals, number, float(number))
    assert capacity(a) == 8.0
    assert utilisation([a]) == 11 / 8  # running and waiting requests
    table.fleet.polls.observed(a, Signals(running=0, waiting=0, started_at=200.0), 5, 5.0)
    assert capacity(a) is None


def test_the_occupancy_of_caches_is_weighted_by_their_sizes(table: Table) -> None:
    a, b, c = table.add("a"), table.add("b"), table.add("c")
    assert kv_occupancy([a, b, c]) is None
    a.kv_usage, a.kv_tokens = 0.8, 300
    b.kv_usage, b.kv_tokens = 0.4, 100
    assert kv_occupancy([a, b, c]) == pytest.approx(0.7), "a replica without metrics is left out"
    c.kv_usage = 0.5  # its size is unknown
    assert kv_occupancy([c]) == 0.5
