"""The waiting tickets of a queue: counts, deadlines, keys with a limit, new policies."""

from typing import Any

from hypothesis import given, strategies as st

from policies.queueing.ticket import Ticket
from router.admission.concurrency import Concurrency
from router.admission.service_rate import UNKNOWN_S
from tests.admission.parts import PATIENT, Parts
from tests.admission.world import Spot, config, every_class
from tests.tickets import make_ticket

RULES = {"policy": "fifo", "classes": every_class(**PATIENT)}


def make(**fields: Any) -> Parts:
    return Parts(**{**RULES, **fields})


def is_empty(parts: Parts) -> bool:
    lists = parts.wait_lists
    return (lists.count, lists.eligible, lists.eligible_of, lists.active) == (0, 0, [0] * 5, {})


# -- coming and going -------------------------------------------------------------------------


def test_only_a_lost_ticket_does_not_go_before_a_new_request() -> None:
    parts = Parts(Spot("a"), policy="slide", classes=every_class(ttft_slo_s=2.0))
    lists = parts.wait_lists
    assert not lists.is_before("m", 2, 0.0)
    ticket = parts.waits(0.0, model="m")
    assert lists.is_before("m", 2, 1.0)
    assert not lists.is_before("m", 1, 1.0) and not lists.is_before("n", 2, 1.0)
    assert not lists.is_before("m", 2, 3.0)
    assert lists.has("m", 2)
    parts.leaves(ticket)


def test_tickets_with_excluded_replicas_are_listed() -> None:
    parts = make()
    plain, picky = parts.waits(), parts.waits(excluded=(object(),))
    assert list(parts.wait_lists.picky) == [picky]
    parts.leaves(picky)
    parts.leaves(plain)
    assert parts.wait_lists.picky == {}


def test_few_empty_lanes_are_kept() -> None:
    parts = make()
    for number in range(500):
        parts.leaves(parts.waits(model=f"m{number}"))
    assert len(parts.wait_lists._lanes) <= 65
    assert is_empty(parts)


def test_the_age_of_the_oldest_by_class() -> None:
    parts = make()
    assert parts.wait_lists.ages_s(5.0) == [0.0] * 5
    parts.waits(1.0, number=2.0, model="m")
    parts.waits(3.0, number=2.0, model="n")
    parts.waits(4.0, number=4.0)
    assert parts.wait_lists.ages_s(5.0) == [0.0, 0.0, 4.0, 0.0, 1.0]
    assert parts.wait_lists.ages_s(5.0, is_eligible=True) == [0.0, 0.0, 4.0, 0.0, 1.0]


def test_a_blocked_ticket_is_not_the_oldest_that_may_be_sent() -> None:
    parts, key = make(), Concurrency(0)
    parts.waits(1.0, concurrency=key)
    parts.waits(3.0)
    assert parts.wait_lists.ages_s(5.0)[2] == 4.0
    assert parts.wait_lists.ages_s(5.0, is_eligible=True)[2] == 2.0


# -- deadlines --------------------------------------------------------------------------------


def test_the_earliest_deadline_of_a_waiting_ticket() -> None:
    parts = make()
    assert parts.wait_lists.next_deadline() is None
    parts.waits()
    late, early = parts.waits(deadline=9.0), parts.waits(deadline=5.0)
    assert parts.wait_lists.next_deadline() is early
    parts.leaves(early)
    assert parts.wait_lists.next_deadline() is late
    parts.leaves(late)
    assert parts.wait_lists.next_deadline() is None


def test_deadlines_of_tickets_that_left_are_not_kept() -> None:
    parts = make()
    parts.waits(deadline=1e9)
    for number in range(1000):
        parts.leaves(parts.waits(deadline=10.0 + number))
    assert len(parts.wait_lists._deadlines) <= 64 + 2 * 2 + 1


# -- queries ----------------------------------------------------------------------------------


def test_without_eligible_tickets_no_rate_is_known() -> None:
    assert make().wait_lists.retry_after_s(2, 100, 0.0) == UNKNOWN_S


def test_how_many_go_before_a_new_ticket_at_least() -> None:
    by_arrival, fair, other = make(), make(policy="fair"), make(policy="shortest")
    for parts in (by_arrival, fair, other):
        for key in ("a", "a", "b"):
            parts.waits(key=key, model="m")
    ticket = make_ticket(key="a", model="m")
    assert by_arrival.wait_lists.ahead_at_least(ticket) == 3
    assert by_arrival.wait_lists.ahead_at_least(make_ticket(model="n")) == 0
    assert other.wait_lists.ahead_at_least(ticket) == 0
    fair.wait_lists.holders.join(ticket)
    assert fair.wait_lists.ahead_at_least(ticket) == 2


# -- keys with a limit ------------------------------------------------------------------------


def test_a_dropped_ticket_makes_room_for_one_that_is_blocked() -> None:
    parts, key = make(), Concurrency(1)
    first, second = (parts.waits(concurrency=key) for _ in range(2))
    parts.leaves(first)
    assert second.blocked_in is not None
    assert parts.orders.is_woken
    parts.wait_lists.refill(1.0)
    assert second.blocked_in is None
    parts.leaves(second)
    assert is_empty(parts)
    assert key.key_queues == {}


def test_a_blocked_ticket_that_starves_is_unblocked_first() -> None:
    classes = every_class(wait_s=1e6, starvation_s=10.0)
    parts, key = make(policy="shortest", classes=classes), Concurrency(0)
    long, short = (parts.waits(tokens=n, concurrency=key) for n in (9000, 1))
    key.adopt(1, 5.0)
    assert (long.blocked_in is None, short.blocked_in is None) == (False, True)
    key.adopt(0, 6.0)
    key.adopt(1, 8.0)
    assert (long.blocked_in is None, short.blocked_in is None) == (True, False)


# -- another policy ---------------------------------------------------------------------------


def test_waiting_tickets_move_to_lines_of_a_new_policy() -> None:
    parts, key = make(), Concurrency(1)
    tickets = [parts.waits(tokens=tokens) for tokens in (30, 10, 20)]
    blocked = [parts.waits(tokens=tokens, concurrency=key) for tokens in (50, 7, 6)]
    assert parts.rules.adopt(config(policy="shortest"))
    parts.wait_lists.reline()
    class_queue = tickets[0].class_queue
    assert class_queue.line.band(1, 0.0) == [tickets[1]]
    assert class_queue.eldest() is tickets[0]
    assert blocked[1].blocked_in.line.first(0.0) is blocked[2]
    assert parts.wait_lists.count == 6
    for ticket in (*tickets, *blocked):
        parts.leaves(ticket)
    assert is_empty(parts)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["wait", "wait", "drop", "take", "give", "refill"]),
        st.integers(0, 40),
        st.sampled_from([1.0, 2.0, 4.0]),
    ),
    max_size=60,
)


@given(STEPS)
def test_counts_agree_under_random_operations(steps: list[tuple[str, int, float]]) -> None:
    parts, key = make(policy="fair"), Concurrency(3)
    lists, waiting, taken = parts.wait_lists, list[Ticket](), list[bool]()
    for act, number, urgency in steps:
        if act == "wait":
            limit = key if number % 2 else None
            waiting.append(
                parts.waits(number=urgency, model=f"m{number % 3}", concurrency=limit, tokens=1)
            )
        elif act == "drop" and waiting:
            parts.leaves(waiting.pop(number % len(waiting)))
        elif act == "take":
            taken.append(urgency == 4.0)
            key.take(taken[-1], 0.0)
        elif act == "give" and taken:
            key.give(taken.pop(), 0.0)
        elif act == "refill":
            lists.refill(0.0)
        assert lists.count == len(waiting)
        assert set(lists.tickets()) == set(waiting)
        free = [t for t in waiting if t.blocked_in is None]
        assert lists.eligible == len(free)
        assert lists.eligible_of == [sum(t.urgency == c for t in free) for c in range(5)]
        for lane in lists.active.values():
            assert lane.count == sum(t.lane == lane.name for t in waiting)
            for class_queue in lane.all_queues():
                assert (class_queue.line.first(0.0) is None) == (class_queue.count == 0)
    for ticket in waiting:
        parts.leaves(ticket)
    assert is_empty(parts)
    assert key.key_queues == {}
