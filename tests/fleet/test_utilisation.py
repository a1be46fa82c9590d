"""Utilisation: configured, reported or learned capacity, and unknown capacity."""

from __future__ import annotations

import pytest

from router.core.lease import Lease
from router.fleet.learned_capacity import (
    FIRST,
    GROWTH,
    POLLS,
    POLLS_PREFILL,
    PREFILL_TOKENS,
    LearnedCapacity,
)
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from router.fleet.utilisation import capacity, slots_of, utilisation
from tests.fleet.helpers import Table
from tests.harness.running import scenario


def polls(learned: LearnedCapacity, *seen: tuple[int | None, int | None]) -> float | None:
    for running, waiting in seen:
        learned.observed(running, waiting)
    return learned.requests


def queue(running: int) -> list[tuple[int, int]]:
    return [(running, 2)] * POLLS


def test_an_engine_that_never_queued_has_no_known_capacity() -> None:
    assert polls(LearnedCapacity(), (0, 0), (50, 0), (200, 0)) is None


def test_an_engine_that_goes_on_queueing_is_full() -> None:
    assert polls(LearnedCapacity(), (10, 0), *queue(32)) == 32.0


def test_a_request_on_its_way_in_is_no_queue() -> None:
    learned = LearnedCapacity()
    assert polls(learned, *[(3, 1), (3, 0)] * 10) is None
    assert polls(learned, *[(3, 1), (None, None)] * 10) is None
    assert polls(learned, *[(0, 5)] * 10) is None  # it runs nothing: it hangs
    assert polls(learned, *[(n, 5) for n in range(1, 100)]) is None  # its batch grows


def test_what_runs_tells_what_would_fit_into_the_cache() -> None:
    learned = LearnedCapacity()
    learned.observed(0, 0, 0.0)
    learned.observed(1, 0, 0.01)  # too little data
    assert learned.requests is None
    learned.observed(8, 0, 0.16)
    assert learned.requests == pytest.approx(50.0)
    for _ in range(30):
        learned.observed(8, 0, 0.32)  # longer prompts
    assert learned.requests == pytest.approx(25.0, rel=0.01)


def test_a_queue_of_long_prompts_is_on_its_way_in_unless_it_stays() -> None:
    learned = LearnedCapacity()
    for _ in range(POLLS_PREFILL - 1):
        learned.observed(8, 1, 0.16, tokens=PREFILL_TOKENS)
    assert (learned.requests, learned.slots) == (pytest.approx(50.0), None)
    learned.observed(8, 1, 0.16, tokens=PREFILL_TOKENS)  # it has other limits than its cache
    assert learned.requests == learned.slots == 8.0


def test_a_full_cache_or_a_preemption_needs_one_poll() -> None:
    full, preempting = LearnedCapacity(), LearnedCapacity()
    full.observed(8, 1, 0.9)
    assert full.slots == 8.0
    preempting.observed(8, 0, 0.7, 3)
    preempting.observed(6, 2, 0.7, 4)
    assert preempting.slots == 6.0
    unknown = LearnedCapacity()
    unknown.observed(6, 2, 0.7, 4)  # the start of the full state is unknown
    assert unknown.slots is None


def test_a_poll_that_is_older_than_what_was_sent_raises_no_guess() -> None:
    learned = LearnedCapacity()
    learned.observed(4, 0, sent=11)  # seven may wait there by now
    assert learned.guess == FIRST
    learned.observed(10, 0, sent=11)  # one was just sent
    assert learned.guess == GROWTH * 10


def test_what_is_not_known_is_guessed_from_what_ran() -> None:
    learned = LearnedCapacity()
    assert (learned.slots, learned.guess) == (None, FIRST)
    learned.observed(int(FIRST), 0)
    assert learned.guess == GROWTH * FIRST
    learned.observed(2, 0)
    assert learned.guess == GROWTH * FIRST
    learned.observed(12, 20)  # that was too much
    assert (learned.slots, learned.guess) == (None, GROWTH * FIRST)
    learned.observed(12, 20)
    assert learned.slots == 12.0
    learned.observed(13, 20)  # one may have ended just before a poll
    assert learned.slots == 13.0
    learned.observed(20, 1)  # it was not full
    assert learned.slots is None
    learned.observed(20, 0)
    assert learned.guess == GROWTH * 20


@scenario
async def test_what_may_be_sent_is_not_what_was_configured() -> None:
    table = Table()
    a = table.add("a", max_inflight=500)
    assert (capacity(a), slots_of(a)) == (500, None)
    polls(a.learned, *queue(6))
    assert slots_of(a) == 6.0
    a.slots = 4
    assert slots_of(a) == 4
    table.close()


def test_one_that_runs_more_was_not_full() -> None:
    learned = LearnedCapacity()
    assert polls(learned, *queue(8), (20, 0)) == 20.0
    assert polls(learned, (5, 0), (1, 0)) == 20.0


def test_a_small_engine_that_was_seen_between_two_requests_stays_full() -> None:
    """Two polls in a row saw one of its two slots free between two requests."""
    learned = LearnedCapacity()
    polls(learned, *queue(2), *queue(1))
    assert learned.slots == 1.75
    polls(learned, (2, 9))
    assert learned.slots == 2.0
    polls(learned, (3, 9))
    assert learned.slots is None


def test_longer_prompts_fill_it_with_fewer() -> None:
    learned = LearnedCapacity()
    assert polls(learned, *queue(100)) == 100.0
    found = polls(learned, *[(40, 5)] * 30)
    assert found == pytest.approx(40.0, rel=0.05)


def test_a_restart_forgets() -> None:
    learned = LearnedCapacity()
    polls(learned, *queue(8))
    learned.forget()
    assert (polls(learned, (8, 1)), learned.slots) == (None, None)
    learned.forget()
    assert learned.guess == FIRST


def busy(replica: Replica, count: int) -> list[Lease]:
    return [Lease(replica) for _ in range(count)]


@scenario
async def test_configured_told_or_learned() -> None:
    table = Table()
    a, b = table.add("a"), table.add("b", max_inflight=10)
    assert (capacity(a), capacity(b)) == (None, 10)
    a.slots = b.slots = 4
    assert (capacity(a), capacity(b)) == (4, 4)
    b.slots = 64
    assert capacity(b) == 10
    a.slots = None
    polls(a.learned, *queue(6))
    assert capacity(a) == 6.0
    table.close()


@scenario
async def test_of_a_pool_it_is_all_requests_over_all_capacity() -> None:
    table = Table()
    a, b, c = table.add("a", max_inflight=10), table.add("b", max_inflight=30), table.add("c")
    leases = [*busy(a, 10), *busy(b, 10), *busy(c, 50)]
    assert utilisation([a]) == 1.0
    assert utilisation([a, b]) == 0.5
    assert utilisation([a, b, c]) == 0.5  # c is unknown
    assert utilisation([c]) is None
    assert utilisation([]) is None
    for lease in leases:
        lease.release()
    assert utilisation([a, b]) == 0.0
    table.close()


@scenario
async def test_polls_teach_it_and_a_restart_ends_it() -> None:
    table = Table()
    a = table.add("a")
    for number in range(1, 5):
        a.polls = number
        signals = Signals(running=8, waiting=3, started_at=100.0)
        table.fleet.observed(a, signals, number, float(number))
    assert capacity(a) == 8.0
    assert utilisation([a]) == 11 / 8  # running and waiting
    table.fleet.observed(a, Signals(running=0, waiting=0, started_at=200.0), 5, 5.0)
    assert capacity(a) is None
    table.close()
