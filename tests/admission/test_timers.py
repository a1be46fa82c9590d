"""The effect of time alone on waiting tickets, and the exact time of the next tick."""

from math import inf
from typing import Any

import pytest
from hypothesis import given, strategies as st

from policies.queueing.run import Run
from policies.queueing.ticket import ENDED, WAITING, Ticket
from router.admission.concurrency import Concurrency
from router.admission.counts import GONE
from router.admission.timers import EARLY_S, Ticked
from router.core.errors import Reason, RouterError
from tests.admission.parts import PATIENT, Parts
from tests.admission.world import Spot, Stand, every_class
from tests.tickets import make_ticket

STILL = {"policy": "fifo", "batch_becomes_normal_after_s": 0.0}
TIMEOUT_S = 8.0


def timed(*spots: Spot, **fields: Any) -> Parts:
    """Each class waits for 8 s at most and is promoted after 6 s; nothing becomes more urgent."""
    classes = every_class(wait_s=TIMEOUT_S, starvation_s=8.0, absent_s=3.0)
    return Parts(*(spots or (Spot("a"),)), **{**STILL, "classes": classes, **fields})


def aged(parts: Parts, now: float) -> Ticked:
    ticked = Ticked()
    parts.stand.clock = lambda: now
    parts.timers.age(ticked, now)
    return ticked


def reasons(ticked: Ticked) -> list[Reason]:
    return [over.error.reason for over in ticked.expired]


# -- expiry -----------------------------------------------------------------------------------


def test_a_ticket_expires_at_its_timeout_and_not_before() -> None:
    parts = timed()
    ticket = parts.waits(1.0)
    assert aged(parts, 8.9).expired == []
    assert ticket.state == WAITING
    ticked = aged(parts, 1.0 + TIMEOUT_S)
    (over,) = ticked.expired
    assert (over.ticket, over.error.reason) == (ticket, Reason.QUEUE_TIMEOUT)
    assert "class normal, 8.0 s" in over.error.message
    assert over.error.retry_after_s
    assert ticket.state == ENDED
    assert parts.counts.dropped[Reason.QUEUE_TIMEOUT] == [0, 0, 1, 0, 0]
    assert parts.wait_lists.count == 0
    assert ticked.next_at == inf


def put_back(parts: Parts, arrival: float, ran_s: float, **facts: Any) -> Ticket:
    """A ticket that returns from a replica and is older than the waiting tickets."""
    ticket = make_ticket(arrival=arrival, output=0, **facts)
    ticket.order = parts.orders.next() - 1_000_000
    ticket.run = Run()
    ticket.run.ran_s = ran_s
    parts.enters(ticket, arrival + ran_s)
    return ticket


@pytest.mark.parametrize("is_limited", [False, True])
def test_tickets_behind_one_that_was_put_back_expire_in_time(is_limited: bool) -> None:
    """If the limit of their key blocks the tickets, they expire in the same way."""
    parts = timed()
    facts = {"concurrency": Concurrency(0)} if is_limited else {}
    younger = [parts.waits(1.0 + n // 3, **facts) for n in range(9)]
    first = put_back(parts, 0.5, 100.0, **facts)
    second = put_back(parts, 0.75, 2.0, **facts)
    assert aged(parts, 7.0).expired == []
    ticked = aged(parts, 1.0 + TIMEOUT_S)
    assert [over.ticket for over in ticked.expired] == younger[:3]
    assert ticked.next_at == 2.0 + TIMEOUT_S
    ticked = aged(parts, 2.0 + TIMEOUT_S)
    assert [over.ticket for over in ticked.expired] == younger[3:6]
    assert ticked.next_at == 2.75 + TIMEOUT_S
    assert [over.ticket for over in aged(parts, 2.75 + TIMEOUT_S).expired] == [second]
    ticked = aged(parts, 3.0 + TIMEOUT_S)
    assert [over.ticket for over in ticked.expired] == younger[6:]
    ticked = aged(parts, 3.0 + TIMEOUT_S)
    assert (ticked.expired, ticked.next_at) == ([], 100.5 + TIMEOUT_S)
    assert [over.ticket for over in aged(parts, 100.5 + TIMEOUT_S).expired] == [first]
    assert parts.wait_lists.count == 0


def test_many_tickets_behind_one_that_was_put_back_expire_in_several_ticks() -> None:
    parts = timed()
    for _ in range(3000):
        parts.waits(1.0)
    put_back(parts, 0.5, 100.0)
    expired, ticks = 0, 0
    while (ticked := aged(parts, 1.0 + TIMEOUT_S)).next_at <= 1.0 + TIMEOUT_S:
        expired += len(ticked.expired)
        ticks += 1
    assert (expired, ticks) == (3000, 3)
    assert (parts.wait_lists.count, ticked.next_at) == (1, 100.5 + TIMEOUT_S)


def test_without_a_replica_a_ticket_waits_as_long_as_its_class_allows() -> None:
    parts = timed()
    parts.stand.lanes["m"] = []
    parts.waits(0.0, model="m")
    other = parts.waits(0.0, model="n")
    assert aged(parts, 2.0).next_at == 2.0 + 3.0  # the replica's absence was noticed only now
    (over,) = aged(parts, 5.0).expired
    assert (over.error.reason, over.error.retry_after_s) == (Reason.NO_REPLICA, 10)
    assert other.state == WAITING


def test_a_model_that_was_removed_ends_the_wait_at_once() -> None:
    class Removed(Stand):
        def refusal(self, lane: str) -> RouterError | None:
            return RouterError(Reason.MODEL_NOT_FOUND, "gone") if lane == "m" else None

    parts = timed()
    parts.stand.__class__ = Removed
    parts.stand.lanes = {"m": [], "n": []}
    for model in ("m", "n"):
        parts.waits(0.0, model=model)
    ticked = aged(parts, 0.5)
    assert reasons(ticked) == [Reason.MODEL_NOT_FOUND]
    assert parts.counts.dropped[GONE] == [0, 0, 1, 0, 0]
    assert parts.wait_lists.count == 1


def test_the_limit_of_a_key_is_named_where_it_was_the_cause() -> None:
    parts, key = timed(), Concurrency(0)
    parts.waits(0.0, concurrency=key)
    ticked = aged(parts, 1.0)
    assert ticked.next_at == TIMEOUT_S  # no promotion: only the timeout can end this wait
    (over,) = aged(parts, TIMEOUT_S).expired
    assert over.error.reason is Reason.QUEUE_TIMEOUT
    assert over.error.message.startswith("the key's limit of concurrent requests")


def test_thousands_expire_in_several_ticks() -> None:
    parts = timed()
    for _ in range(1500):
        parts.waits(0.0)
    first = aged(parts, 100.0)
    assert 1000 <= len(first.expired) < 1500
    assert first.next_at == 100.0
    second = aged(parts, 100.0)
    assert len(first.expired) + len(second.expired) == 1500


# -- promotion and aging ----------------------------------------------------------------------


def test_a_ticket_is_promoted_before_its_bound() -> None:
    parts = timed()
    first, second = parts.waits(1.0), parts.waits(1.5)
    assert aged(parts, 2.0).next_at == 1.0 + 6.0
    assert [first.starved, second.starved] == [False, False]
    ticked = aged(parts, 7.0)
    assert [first.starved, second.starved] == [True, False]
    assert parts.counts.promoted == [0, 0, 1, 0, 0]
    assert ticked.next_at == 1.5 + 6.0
    assert aged(parts, 7.5).next_at == 1.0 + TIMEOUT_S


def test_a_ticket_passes_another_gate_at_every_half_level() -> None:
    """Two levels in 20 s; the class queue must be checked only at these times."""
    classes = every_class(**PATIENT)
    parts = Parts(Spot("a"), policy="fifo", classes=classes, batch_becomes_normal_after_s=20.0)
    ticket = parts.waits(0.0, number=3.0)
    gates, now = {0.0: 3}, 0.0
    while (ticked := aged(parts, now)).next_at < 100.0:
        assert ticked.next_at > now
        now = ticked.next_at
        gates[round(now, 1)] = parts.choice.gate(ticket.class_queue, ticket, now)
    # Age ends at high, so there is no tick at 25 s.
    assert gates == {0.0: 3, 5.0: 2, 15.0: 1}


# -- early polls ------------------------------------------------------------------------------


def urged(parts: Parts, now: float) -> Ticked:
    ticked = Ticked()
    parts.timers.poll_early(ticked, now)
    return ticked


def closed_by_whole_attempts() -> tuple[Parts, Spot]:
    """A replica whose engine answers at once; no poll has counted the attempts yet."""
    spot = Spot("a", slots=1)
    spot.inflight = spot.waiting = spot.load = spot.whole_fresh = 5
    parts = timed(spot)
    parts.gates.of(spot)
    return parts, spot


def test_a_replica_that_only_a_poll_can_open_is_polled_ever_more_rarely() -> None:
    parts, spot = closed_by_whole_attempts()
    assert urged(parts, 0.0).polls == []  # no ticket waits for it
    parts.waits(0.0)
    ticked = urged(parts, 0.0)
    assert (ticked.polls, ticked.next_at) == ([spot], EARLY_S)
    assert urged(parts, EARLY_S - 0.01).polls == []
    assert urged(parts, EARLY_S).polls == [spot]
    ticked = urged(parts, EARLY_S + 0.5)
    assert (ticked.polls, ticked.next_at) == ([], EARLY_S + 1.0)


def test_a_replica_that_its_own_streams_close_is_not_polled() -> None:
    parts, spot = closed_by_whole_attempts()
    spot.whole_fresh = 0
    parts.waits(0.0)
    ticked = urged(parts, 0.0)
    assert (ticked.polls, ticked.next_at) == ([], inf)


def test_a_blocked_ticket_needs_no_poll() -> None:
    parts, _ = closed_by_whole_attempts()
    parts.waits(0.0, concurrency=Concurrency(0))
    assert urged(parts, 0.0).polls == []


# -- the time of the next tick ----------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 10.0), st.sampled_from([0.0, 2.0, 4.0]), st.none() | st.floats(0.0, 9.0)
        ),
        max_size=12,
    )
)
def test_no_tick_is_missed_by_a_clock_that_rings_only_then(
    arrivals: list[tuple[float, float, float | None]],
) -> None:
    parts = timed(batch_becomes_normal_after_s=4.0)
    pending = sorted(arrivals, key=lambda one: one[0])
    ends: dict[Ticket, float] = {}
    now, due, ticks = 0.0, inf, 0
    while pending or due < inf:
        if pending and pending[0][0] <= due:
            now, number, wait_s = pending.pop(0)
            deadline = inf if wait_s is None else now + wait_s
            ticket = parts.waits(now, number=number, deadline=deadline)
            ends[ticket] = min(now + TIMEOUT_S, deadline)
        else:
            now = due
        ticked = aged(parts, now)
        ticks += 1
        for over in ticked.expired:
            assert now == pytest.approx(ends.pop(over.ticket))
        due = ticked.next_at
        assert due >= now
        assert ticks < 40 * (len(arrivals) + 1)
    assert ends == {}
