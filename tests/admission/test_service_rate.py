"""Service rates: the value of Retry-After, and the detection of hopeless waits."""

from math import exp

import pytest

from router.admission.queue import _HOPELESS
from router.admission.service_rate import _AVERAGE_S, ServiceRate
from router.core.errors import Reason, RouterError
from tests.admission.world import Spot, World, config, every_class
from tests.tickets import make_ticket

NORMAL, BATCH = 2, 4


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


def test_a_class_with_a_timeout_refuses_what_it_could_not_serve() -> None:
    world = crowded(classes=every_class(wait_s=1000.0, starvation_s=1000.0))
    world.queue.adopt(config(classes=every_class(wait_s=10.0, starvation_s=10.0)))
    ticket = make_ticket(tokens=1, arrival=world.now)
    with pytest.raises(RouterError) as caught:
        world.queue.offer(ticket, world.now)
    assert caught.value.reason is Reason.QUEUE_TOO_LONG
