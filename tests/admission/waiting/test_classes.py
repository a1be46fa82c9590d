"""The order among classes, and the effect of waiting time alone."""

import pytest

from policies.queueing.contract import order_names
from policies.queueing.ticket import Ticket
from router.admission.elsewhere import _PAUSE_S
from tests.admission.world import Spot, World, config
from tests.examples import ALL
from tests.share.routers import Routers, over, world

NARROW = {"prefill_tokens": 0}


def saturated(
    ours: World | Routers, seconds: float, *, number: float = 1.0, every_s: float = 0.05
) -> None:
    """Add more requests of a class than the fleet can serve in this time."""
    ours.come_often(every_s, int(seconds / every_s), number=number, tokens=1000, output=100)


@over
def test_a_chat_request_does_not_wait_for_ten_thousand_batch_requests(routers: int) -> None:
    """The chat request comes to a router without a batch request."""
    ours = world(routers, [Spot("a", slots=8)], deal=lambda ticket: len(ticket.flow.account))
    for _ in range(10_000 if routers == 1 else 1000):
        ours.come(number=4.0, key="batch", tokens=4000, output=50)
    ours.run(30.0)
    before = len(ours.order)
    chat = ours.come(number=1.0, key="chat", tokens=100, output=50)
    ours.run(5.0)
    # Requests that already wait at the replica are served first, then none from the queue.
    assert ours.order.index(chat) == before
    assert ours.first[chat] - chat.arrival < 1.5


@pytest.mark.parametrize("becomes_normal_s", [0.0, 600.0, 20.0] if ALL else [600.0])
@pytest.mark.parametrize("name", order_names())
def test_under_endless_high_load_every_batch_request_starts_within_its_bound(
    name: str, becomes_normal_s: float
) -> None:
    bound_s = 60.0
    rules = config(
        policy=name,
        batch_becomes_normal_after_s=becomes_normal_s,
        classes={
            "high": {"wait_s": 30.0},
            "batch": {"starvation_s": bound_s},
            "low": {"starvation_s": bound_s},
        },
    )
    world = World([Spot("a", slots=16), Spot("b", slots=16)], rules)
    saturated(world, 300.0, every_s=0.03)
    world.run(5.0)
    assert world.queue.depth[1] > 0
    late: list[Ticket] = []
    for number in range(80):
        # Long and short requests of a flow with many requests, and of a flow with few requests.
        key = "batch" if number % 2 else f"k{number}"
        size = 4000 if number % 3 else 100
        late.append(world.come(number=3.0 + number % 2, key=key, tokens=size, output=50))
        world.run(2.0)
    world.run(bound_s)
    assert world.queue.depth[1] > 0
    waits = [world.started[ticket] - ticket.arrival for ticket in late]
    assert max(waits) <= bound_s


@over
@pytest.mark.parametrize("order", ["strict", "weighted"])
def test_a_request_starts_within_its_bound_at_whichever_router_it_waits(
    order: str, routers: int
) -> None:
    """All requests of class high come to one router, and wait for longer than their own bound.

    The excess of several routers is one pause of `elsewhere.py`, after a slot that none has used.
    """
    bound_s = 12.0
    rules = config(
        order=order,
        classes={
            "high": {"wait_s": 30.0},
            "batch": {"starvation_s": bound_s},
            "low": {"starvation_s": bound_s},
        },
    )
    spots = [Spot("a", slots=8), Spot("b", slots=8)]
    ours = world(routers, spots, rules, lambda ticket: ticket.urgency)
    saturated(ours, 40.0)
    ours.run(7.0)
    late: list[Ticket] = []
    for number in range(8):
        late.append(ours.come(number=3.0 + number % 2, key=f"k{number}", tokens=1000, output=50))
        ours.run(1.0)
    ours.run(bound_s)
    assert ours.depth[1] > 0
    waits = [ours.started[ticket] - ticket.arrival for ticket in late]
    assert max(waits) <= bound_s + _PAUSE_S * (routers > 1)


def test_the_longest_wait_and_the_number_of_skips_are_reported() -> None:
    world = World([Spot("a", slots=1)], config(gates=NARROW))
    world.pool.spots[0].prefills = True
    for _ in range(4):
        world.come(number=0.0, tokens=10, output=1)
    world.come(number=2.0, tokens=10, output=1)
    world.run(3.0)
    world.come(number=1.0, tokens=10, output=1)
    world.run(2.0)
    assert world.queue.wait_lists.ages_s(world.now) == pytest.approx([0.0, 2.0, 5.0, 0.0, 0.0])
    assert world.queue.counts.inverted == [0] * 5
    world.pool.spots[0].prefills = False
    for _ in range(20):
        world.come(number=1.0, tokens=100, output=1)
        world.come(number=2.0, tokens=100, output=1)
    world._serve(world.pool.spots[0])
    world.run(20.0)
    assert world.queue.counts.inverted[2] > 0  # class low was served while high requests waited
    assert world.queue.counts.inverted[0] == world.queue.counts.inverted[1] == 0
    assert world.queue.wait_lists.ages_s(world.now) == [0.0] * 5


@pytest.mark.parametrize(("rate", "after_s"), [(0.1, 20.0), (1 / 300, 600.0)])
def test_the_order_by_age_makes_batch_normal_when_its_file_says(
    rate: float, after_s: float
) -> None:
    """A batch request overtakes normal requests that arrive later than the configured time."""
    for early_s, goes_first in ((-1.0, False), (1.0, True)):
        alike = {"wait_s": 1e5, "starvation_s": 1e5, "waiting": 3}
        rules = config(
            policy="aging",
            options={"rate": rate},
            gates=NARROW,
            classes={"normal": alike, "batch": alike},
        )
        spot = Spot("a")
        world = World([spot], rules)
        spot.prefills = True
        held = [world.come(number=0.0, tokens=10, output=1) for _ in range(4)]
        batch = world.come(number=4.0, tokens=10, output=1)
        world.run(after_s + early_s)
        assert batch not in world.started
        normal = world.come(tokens=10, output=1)
        for ticket in held:
            world.leave(ticket)
        spot.prefills = False
        world.run(5.0)
        assert (world.order.index(batch) < world.order.index(normal)) is goes_first
