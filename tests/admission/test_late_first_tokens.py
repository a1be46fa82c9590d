"""Tickets whose first token would be late: their estimates, and their refusal if configured."""

from typing import Any

import pytest

from policies.queueing.ticket import ENDED, WAITING, Ticket
from router.admission.concurrency import Concurrency
from router.admission.wait_forecast import BY_TURNS, WaitForecast
from router.core.conformal import LEAST
from router.core.errors import Reason
from router.core.ttft_estimate import LATER, SOON, TtftEstimates
from tests.admission.world import Spot, World, config
from tests.tickets import make_ticket

NORMAL = 2
SERVICE_S = 0.1


def crowded(late: str, waiting: int = 200, policy: str = "fifo") -> World:
    """A replica serves ten requests per second, and this number of requests waits."""
    spot = Spot("a", slots=1, prefill_rate=1e9, tpot_s=0.1, limit=1)
    rules = config(policy=policy, classes={"normal": {"late": late, "ttft_slo_s": 2.0}})
    world = World([spot], rules, estimates=TtftEstimates())
    for _ in range(100):
        come(world)
    world.run(5.0)
    while world.queue.waiting < waiting:
        come(world)
    return world


def come(world: World, **facts: Any) -> Ticket:
    """A request arrives, and its first token is predicted `SERVICE_S` after its dispatch."""
    ticket = make_ticket(tokens=1, output=1, arrival=world.now, **facts)
    ticket.forecast = WaitForecast(SERVICE_S, SERVICE_S)
    world.offer(ticket)
    return ticket


def teach(world: World, ratio: float = 1.0, count: int = LEAST) -> None:
    """First tokens of tickets that waited came after this multiple of their predictions."""
    estimates = world.queue._forecasts._estimates
    assert estimates is not None
    for state in (SOON, LATER):
        for _ in range(count):
            estimates.of(NORMAL, state, "", 1.0, 0.0, world.now - ratio).shown(world.now)


def test_the_turns_serve_the_cost_that_was_measured() -> None:
    """Each request costs 4: one prompt token, and two for one output token."""
    world = crowded("serve", 80, "fair")
    come(world)
    assert world.queue._forecasts.turns._capacity == pytest.approx(40.0, rel=0.05)


def test_a_ticket_that_would_be_late_is_refused_at_once() -> None:
    world = crowded("refuse")
    teach(world)
    waits, dropped = world.queue.waiting, world.queue.counts.dropped[Reason.TTFT_UNREACHABLE]
    ticket = come(world)
    assert ticket.state == ENDED
    (_, err) = world.refused[-1]
    assert (err.reason, err.status) == (Reason.TTFT_UNREACHABLE, 429)
    # 20 s of work are ahead of it. Two seconds are left when 18 have passed.
    assert err.retry_after_s == pytest.approx(18.0, rel=0.2)
    assert dropped[NORMAL] == 1
    assert world.queue.waiting == waits


def test_the_clients_own_deadline_counts_if_it_is_earlier() -> None:
    world = crowded("refuse")
    teach(world)
    # Not hopeless by the rule of `queue_too_long`, which needs a third of the time.
    assert come(world, ttft_slo_s=60.0, deadline=world.now + 12.0).state == ENDED
    assert world.refused[-1][1].reason is Reason.TTFT_UNREACHABLE


def test_nothing_is_refused_by_default() -> None:
    world = crowded("serve")
    teach(world)
    assert come(world).state == WAITING


def test_a_ticket_that_its_keys_limit_may_block_gets_no_estimate() -> None:
    world = crowded("refuse")
    teach(world)
    limit = Concurrency(1)
    facts: dict[str, Any] = {"concurrency": limit, "key": "k", "ttft_slo_s": 60.0}
    first, second = come(world, **facts), come(world, **facts)
    assert first.forecast.estimate is not None
    assert second.forecast is None


def test_tickets_that_leave_or_are_refused_leave_no_marks() -> None:
    """Nothing is sent meanwhile, and each request ends its estimate, as the proxy does."""
    world = crowded("refuse")
    teach(world)
    marks = world.queue._forecasts.progress._marks[NORMAL]
    before = len(marks)
    for _ in range(500):
        assert come(world).state == ENDED  # it would be late
        left = come(world, ttft_slo_s=60.0)
        assert left.state == WAITING
        world.queue.leave(left)
        left.forecast.estimate.ended(world.now)
    assert len(world.queue._forecasts.progress._marks[NORMAL]) <= 64 + 2 * before


def predicted_s(leaving: int) -> float:
    """The predicted wait of class low after 10 s; each 0.1 s this many high requests leave."""
    world = crowded("serve", 80, policy="fair")
    for _ in range(100):
        for number, most in ((2.0, 80), (3.0, 30)):
            while world.queue.depth[int(number)] < most:
                come(world, number=number)
        for _ in range(leaving):
            world.queue.leave(come(world, number=1.0))
        world.run(0.1)
    found: list[float] = come(world, number=3.0).forecast.predicted_s
    return found[BY_TURNS]


def test_requests_that_leave_do_not_make_other_waits_longer() -> None:
    assert 0.0 < predicted_s(10) < 1.1 * predicted_s(0)
