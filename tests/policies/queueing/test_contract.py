"""The contract of every registered order policy, including third-party ones."""

from random import Random

import pytest

from policies.queueing.contract import OrderPolicy, TicketQueue, make_order, order_names
from policies.queueing.ticket import CLASSES, Ticket
from tests.policies.queueing.helpers import any_ticket, pushed, served, ticket

pytestmark = pytest.mark.parametrize("name", order_names())


def check_looks(line: TicketQueue, waiting: set[Ticket], now: float) -> None:
    """The visible state of a policy's queue is consistent, and reading does not change it."""
    first = line.first(now)
    assert (first is None) is (not waiting)
    band = line.band(64, now)
    if first is not None:
        assert band[0] is first
        line.rank(now)
    assert len(band) <= 64
    assert len(set(band)) == len(band)
    assert waiting.issuperset(band)
    assert all(line.within(each, now) for each in band)
    if len(band) < 64:
        assert not any(line.within(each, now) for each in waiting.difference(band))
    assert line.first(now) is first
    assert line.band(64, now) == band


def test_every_ticket_is_removed_once_under_random_operations(name: str) -> None:
    rng = Random(3)
    policy = make_order(name)
    lines = [policy.line(urgency) for urgency in range(CLASSES)]
    waiting: list[set[Ticket]] = [set() for _ in lines]
    running: list[Ticket] = []
    out: dict[Ticket, int] = {}
    now = 0.0
    for step in range(6000):
        now += rng.choice((0.0, 0.01, 1.0))
        urgency = rng.randrange(CLASSES)
        line, here = lines[urgency], waiting[urgency]
        act = rng.random()
        if act < (0.6 if step < 3000 else 0.2):
            made = any_ticket(rng, now, urgency)
            line.push(made, now)
            here.add(made)
        elif here and act < 0.7:
            gone = rng.choice(sorted(here, key=lambda t: t.order))
            line.drop(gone)
            here.remove(gone)
            out[gone] = out.get(gone, 0) + 1
        elif here and act < 0.95:
            taken = rng.choice(line.band(64, now))
            if rng.random() < 0.1:  # the queue served another ticket first
                taken = rng.choice(sorted(here, key=lambda t: t.order))
            line.take(taken, now)
            here.remove(taken)
            running.append(taken)
        elif running:
            over = running.pop(rng.randrange(len(running)))
            if rng.random() < 0.3:
                policy.refunded(over)
                home = over.urgency
                lines[home].push(over, now)
                waiting[home].add(over)
            else:
                policy.settled(over, rng.randrange(20_000), rng.randrange(5000))
                out[over] = out.get(over, 0) + 1
        if step % 10 == 0:
            check_looks(line, here, now)
    for line, here in zip(lines, waiting, strict=True):
        left = served(policy, line, now)
        assert set(left) == here and len(left) == len(here)
        assert line.first(now) is None
        assert line.band(64, now) == []
    assert set(out.values()) == {1}


def test_equal_requests_go_in_the_order_of_their_arrival(name: str) -> None:
    policy = make_order(name)
    line = policy.line(2)
    tickets = [ticket(tokens=100, arrival=0.001 * n) for n in range(300)]
    pushed(line, tickets)
    assert served(policy, line, 1.0) == tickets


def test_a_ticket_put_back_goes_before_later_ones(name: str) -> None:
    policy = make_order(name)
    line = policy.line(2)
    tickets = [ticket(tokens=100, arrival=0.001 * n) for n in range(10)]
    pushed(line, tickets)
    first = served_one(policy, line)
    assert first is tickets[0]
    line.push(first, 1.0)
    assert served(policy, line, 1.0) == tickets


def served_one(policy: OrderPolicy, line: TicketQueue) -> Ticket:
    first = line.first(1.0)
    assert first is not None
    line.take(first, 1.0)
    policy.refunded(first)
    return first


def test_the_state_stays_bounded_while_10_000_flows_come_and_go(name: str) -> None:
    policy = make_order(name)
    line = policy.line(2)
    rng = Random(1)
    steady = [ticket(key="steady", tokens=100, arrival=0.0) for _ in range(50)]
    pushed(line, steady)
    sizes = []
    for number in range(10_000):
        now = 0.01 * number
        made = ticket(key=f"key-{number}", user=f"u{number}", tokens=rng.randrange(500))
        made.arrival = now
        line.push(made, now)
        if rng.random() < 0.5:
            line.drop(made)
        else:
            line.push(ticket(key="steady", tokens=100, arrival=now), now)
            for _ in range(2):
                first = line.first(now)
                assert first is not None
                line.take(first, now)
                policy.settled(first, first.view.prompt_tokens, first.view.output_tokens)
        if number % 1000 == 999:
            sizes.append(accounts(policy))
    assert max(sizes[5:]) <= max(sizes[:5]) + 200


def accounts(policy: OrderPolicy) -> int:
    """Number of flows that a policy remembers."""
    return sum(len(book.keys) for book in getattr(policy, "books", []))


def test_late_calls_for_ended_tickets_are_harmless(name: str) -> None:
    policy = make_order(name)
    line = policy.line(2)
    first = ticket(key="a", tokens=10)
    line.push(first, 0.0)
    line.take(first, 0.0)
    policy.settled(first, 10, 10)
    policy.settled(first, 10**9, 10**9)
    policy.refunded(first)
    others = [ticket(key=key, tokens=10, arrival=1.0) for key in ("a", "b", "a", "b")]
    pushed(line, others, 1.0)
    assert len(served(policy, line, 1.0)) == 4
