"""Service rates: the value of Retry-After, and the detection of hopeless waits."""

from __future__ import annotations

from math import exp

import pytest

from policies.queueing.ticket import WAITING
from router.admission.arrivals import _HOPELESS
from router.admission.service_rate import _AVERAGE_S, MOST_S, ServiceRate
from router.core.errors import Reason, RouterError
from tests.admission.world import Spot, World, config, every_class
from tests.tickets import make_ticket

NORMAL, BATCH = 2, 4


def served(
    service_rate: ServiceRate, per_s: float, seconds: float, *, of: int = NORMAL, at: float = 0.0
) -> None:
    """Serve this number of requests per second of a class that always waits."""
    service_rate.began(of, at, is_first=True)
    for number in range(1, int(per_s * seconds) + 1):
        service_rate.served(of, at + number / per_s, 1.0, waited=True)


def test_retry_after_follows_the_rate_of_the_class() -> None:
    service_rate = ServiceRate()
    served(service_rate, 10.0, 30.0)
    assert service_rate.retry_after_s(NORMAL, 100, 30.0) == pytest.approx(10, abs=1)
    assert service_rate.retry_after_s(NORMAL, 1, 30.0) == 1
    assert service_rate.retry_after_s(NORMAL, 10**9, 30.0) == MOST_S


def test_a_class_that_is_not_served_gets_a_long_retry_after() -> None:
    service_rate = ServiceRate()
    service_rate.began(BATCH, 0.0, is_first=True)
    served(service_rate, 10.0, 100.0)  # more urgent requests take every place
    assert service_rate.retry_after_s(BATCH, 1, 100.0) >= 60
    assert service_rate.retry_after_s(BATCH, 100, 100.0) == MOST_S
    assert service_rate.retry_after_s(NORMAL, 100, 100.0) == pytest.approx(10, abs=1)


def test_an_unknown_rate_refuses_no_request() -> None:
    service_rate = ServiceRate()
    assert 1 <= service_rate.retry_after_s(NORMAL, 10**9, 0.0) <= MOST_S
    service_rate.began(NORMAL, 0.0, is_first=True)
    assert service_rate.retry_after_s(NORMAL, 1000, 0.1) == 5
    assert service_rate.least_wait_s(10**9, 0.1) == 0.0
    service_rate.served(NORMAL, 9.0, 1.0, waited=True)
    assert service_rate.least_wait_s(10**9, 9.5) == 0.0, "one is not many"


def test_the_served_cost_is_averaged_over_the_same_requests_as_the_rate() -> None:
    service_rate = ServiceRate()
    assert service_rate.cost_per_s(0.0) == 0.0
    service_rate.began(NORMAL, 0.0, is_first=True)
    cost = waited_s = 0.0
    kept = exp(-1.0 / _AVERAGE_S)
    for second in range(1, 401):
        tokens = 1000.0 if second % 2 else 20.0
        service_rate.served(BATCH, float(second), tokens, waited=False)
        cost = cost * kept + tokens
        waited_s = waited_s * kept + _AVERAGE_S * (1.0 - kept)
    assert service_rate.cost_per_s(400.0) == pytest.approx(cost / waited_s)
    later_s = waited_s * kept + _AVERAGE_S * (1.0 - kept)
    assert service_rate.cost_per_s(401.0) == pytest.approx(cost * kept / later_s)


def test_requests_that_did_not_wait_do_not_change_the_rate() -> None:
    """One request per second, each served at once, then a burst: the rate is not one per second."""
    world = World([Spot("a", prefill_rate=1e9, tpot_s=1e-6)], config())
    for _ in range(120):
        world.come(tokens=1, output=1)
        world.run(1.0)
    assert world.queue._service_rate.least_wait_s(10**6, world.now) == 0.0


def test_an_old_rate_is_forgotten() -> None:
    service_rate = ServiceRate()
    served(service_rate, 10.0, 60.0)
    service_rate.began(NORMAL, 1000.0, is_first=True)
    assert service_rate.retry_after_s(NORMAL, 100, 1001.0) == 5
    assert service_rate.least_wait_s(10**6, 1001.0) == 0.0


@pytest.mark.parametrize("service_s", [1.0, 10.0, 60.0, 120.0])
def test_requests_that_end_in_step_do_not_make_a_wait_hopeless(service_s: float) -> None:
    """Sixty-four requests at once, then none until all of them end.

    A request that is in fact served within its time limit must never be called hopeless.
    """
    service_rate = ServiceRate()
    service_rate.began(NORMAL, 0.0, is_first=True)
    now = 0.0
    for _ in range(20):
        now += service_s
        for _ in range(64):
            service_rate.served(NORMAL, now, 1.0, waited=True)
        for part in (0.01, 0.5, 0.99):
            ahead = 640
            takes_s = ahead / 64 * service_s
            assert service_rate.least_wait_s(ahead, now + part * service_s) <= _HOPELESS * takes_s


def crowded(policy: str = "fair", **rules: object) -> World:
    """A replica serves ten requests per second; the backlog needs twenty seconds."""
    spot = Spot("a", slots=1, prefill_rate=1e9, tpot_s=0.1, limit=1)
    world = World([spot], config(policy=policy, **rules))
    for _ in range(1000):
        world.come(tokens=1, output=1)
    world.run(20.0)
    return world


@pytest.mark.parametrize("policy", ["fair", "fifo"])
def test_a_deadline_that_cannot_be_met_is_refused_at_once(policy: str) -> None:
    world = crowded(policy)
    waits = world.queue.waiting
    with pytest.raises(RouterError) as caught:
        world.queue.offer(
            make_ticket(tokens=1, arrival=world.now, deadline=world.now + 10.0), world.now
        )
    error = caught.value
    assert (error.reason, error.status) == (Reason.QUEUE_TOO_LONG, 429)
    rate = (1000 - waits) / 20.0
    assert error.retry_after_s == pytest.approx(waits / rate, rel=0.3)
    assert world.queue.counts.dropped[Reason.QUEUE_TOO_LONG][NORMAL] == 1
    assert world.queue.waiting == waits


def test_a_deadline_that_may_be_met_waits() -> None:
    world = crowded()
    ticket = world.come(tokens=1, output=1, deadline=world.now + 75.0)
    assert ticket.state == WAITING
    other = world.come(tokens=1, output=1, key="other", deadline=world.now + 10.0)
    assert other.state == WAITING, "a fair order does not let it wait behind another key's"


def test_a_class_with_a_timeout_refuses_what_it_could_not_serve() -> None:
    world = crowded(classes=every_class(wait_s=1000.0, starvation_s=1000.0))
    world.queue.adopt(config(classes=every_class(wait_s=10.0, starvation_s=10.0)))
    ticket = make_ticket(tokens=1, arrival=world.now)
    with pytest.raises(RouterError) as caught:
        world.queue.offer(ticket, world.now)
    assert caught.value.reason is Reason.QUEUE_TOO_LONG


def test_an_order_that_may_put_it_first_refuses_nothing() -> None:
    world = crowded("edf")
    assert world.come(tokens=1, output=1, deadline=world.now + 10.0).state == WAITING
