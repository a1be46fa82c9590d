"""Several routers serve their waiting requests in the order of one queue, except for stated excess.

Each test has one scenario, and runs it over one router and over three. What differs with three:
a router learns of a change at another one after at most `INTERVAL_S` and `DELAY_S`. So until the
first message each router fills the replicas as if it were alone, and a free slot may be used one
message later.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from policies.queueing.ticket import SENT, WAITING, Ticket
from router.config.model import Config
from router.core.urgency import BATCH, CRITICAL, HIGH, LOW, NORMAL
from router.share.messages import LOST_S
from tests.admission.world import Spot, config, every_class
from tests.share.routers import DELAY_S, INTERVAL_S, Routers, over, world

TOLD_S = INTERVAL_S + DELAY_S  # until all routers know of a change
SHORT: dict[str, Any] = {"tokens": 100, "output": 20}  # 0.41 s at an idle replica


def rules(**fields: Any) -> Config:
    """No request expires or starves, and only the number of requests closes a gate."""
    patient = every_class(wait_s=1e4, starvation_s=1e4, depth=100_000)
    classes = {**patient, **fields.pop("classes", {})}
    gates = {"prefill_tokens": 0}
    return config(classes=classes, limits={"flow": 100_000}, gates=gates, **fields)


def by_class(ticket: Ticket) -> int:
    return ticket.urgency


def low_alone(ticket: Ticket) -> int:
    return int(ticket.urgency == LOW)


def batch_alone(ticket: Ticket) -> int:
    return int(ticket.urgency == BATCH)


def by_account(ticket: Ticket) -> int:
    return int(ticket.flow.account)


def cost(ticket: Ticket) -> int:
    return ticket.view.prompt_tokens + 2 * ticket.view.output_tokens


@over
def test_the_most_urgent_class_goes_first(routers: int) -> None:
    """Each class waits at a router of its own. The excess: what was sent before the first message.

    No request is sent while a more urgent one waits, from then on.
    """
    ours = world(routers, [Spot("a", slots=4), Spot("b", slots=4)], rules(order="strict"), by_class)
    for number in (LOW, NORMAL, HIGH):
        for _ in range(30):
            ours.come(number=float(number), **SHORT)
    alone = len(ours.order)
    assert alone <= routers * 6  # Three requests may wait at each of two replicas.
    ours.run(10.0)
    left = Counter(ticket.urgency for ticket in ours.order[alone:])
    assert left.total() == 90 - alone
    for ticket in ours.order[alone:]:
        left[ticket.urgency] -= 1
        assert not any(left[more] for more in range(ticket.urgency))
    ours.assert_empty()


@over
def test_classes_take_turns_by_weight(routers: int) -> None:
    """Class high has twice the weight of class normal. Each waits at a router of its own."""
    ours = world(routers, [Spot("a", slots=4), Spot("b", slots=4)], rules(), by_class)
    for _ in range(300):
        ours.come(number=float(HIGH), **SHORT)
        ours.come(number=float(NORMAL), **SHORT)
    ours.run(1.0)
    before = len(ours.order)
    ours.run(12.0)
    served = Counter(ticket.urgency for ticket in ours.order[before:])
    assert ours.depth[HIGH] and ours.depth[NORMAL]
    assert served[HIGH] / served[NORMAL] == pytest.approx(2.0, rel=0.1)


@over
@pytest.mark.parametrize("width", [0.0, 1000.0])
def test_weights_hold_if_all_requests_of_an_account_come_to_one_router(
    routers: int, width: float
) -> None:
    """Account 1 has the weight 4, account 2 the weight 1. The excess is one request of each slot,
    and the `width` of the policy."""
    options = {"width": width}
    ours = world(
        routers,
        [Spot("a", slots=4), Spot("b", slots=4)],
        rules(policy="fair", options=options),
        by_account,
    )
    for _ in range(300):
        ours.come(key="1", weight=4.0, **SHORT)
        ours.come(key="2", weight=1.0, **SHORT)
    ours.run(1.0)
    before = len(ours.order)
    ours.run(12.0)
    served = Counter(ticket.flow.account for ticket in ours.order[before:])
    behind = served["1"] / 4.0 - served["2"]
    assert abs(behind) * cost(ours.order[0]) <= 8 * cost(ours.order[0]) + width
    assert served["1"] / served["2"] == pytest.approx(4.0, rel=0.1 + width / 4000.0)
    assert served.total() > 200


@over
@pytest.mark.parametrize("order", ["strict", "weighted"])
def test_an_old_request_is_served_while_more_urgent_ones_always_wait(
    routers: int, order: str
) -> None:
    """A class whose oldest request is starved gets every other slot, at whichever router it waits.

    The excess: of the few slots of one replica it may get two thirds.
    """
    bound_s = 2.0
    starving = {"low": {"wait_s": 1e4, "starvation_s": bound_s}}
    ours = world(routers, [Spot("a", slots=4)], rules(order=order, classes=starving), by_class)
    for _ in range(200):
        ours.come(number=float(HIGH), **SHORT)
    ours.run(1.0)
    low = [ours.come(number=float(LOW), **SHORT) for _ in range(60)]
    ours.run(bound_s)
    assert low[0] in ours.started
    before = len(ours.order)
    ours.run(5.0)
    served = Counter(ticket.urgency for ticket in ours.order[before:])
    assert ours.depth[HIGH] and ours.depth[LOW]
    assert 0.4 <= served[LOW] / served.total() <= 0.67


@over
def test_a_request_of_an_aged_class_goes_before_one_of_a_class_that_was_more_urgent(
    routers: int,
) -> None:
    """A request of class low that has waited for 3 s goes before a new one of class normal.

    The router of the new requests sees each free slot first.
    """
    ours = world(
        routers,
        [Spot("a", slots=1)],
        rules(order="strict", batch_becomes_normal_after_s=4.0),
        low_alone,
    )
    running = [ours.come(number=float(CRITICAL), tokens=10, output=1000) for _ in range(4)]
    ours.run(TOLD_S)
    old = ours.come(number=float(LOW), **SHORT)
    ours.run(3.0)
    new = [ours.come(number=float(NORMAL), **SHORT) for _ in range(3)]
    ours.run(TOLD_S)
    assert {old.state, *(ticket.state for ticket in new)} == {WAITING}
    ours.leave(running[0])
    ours.run(1.0)
    assert next(ticket for ticket in ours.order if ticket not in running) is old


@over
def test_batch_leaves_slots_free_for_urgent_requests(routers: int) -> None:
    """The router of the urgent requests has learned the headroom; batch comes to another router.

    At level 1, batch leaves a quarter of the slots free, without excess.
    """
    ours = world(routers, [Spot("a", slots=16)], config(), batch_alone)
    for _ in range(200):
        ours.come(number=float(BATCH), tokens=100, output=50)
    ours.run(1.0)
    assert len(ours.jobs) > 12
    headroom = ours.come(number=float(HIGH), tokens=100, output=10).queue.headroom
    headroom.answered(0.0, 0.0, 1.0, ours.now, is_behind_batch=False)  # begins to fall
    headroom.own = 1.0
    ours.run(3.0)
    for _ in range(40):
        ours.run(0.05)
        assert len(ours.jobs) <= 12
    high = ours.come(number=float(HIGH), tokens=100, output=10)
    assert high.state == SENT
    ours.run(0.2)
    assert ours.first[high] - high.arrival < 0.05


@over
def test_a_request_that_leaves_keeps_no_slot_free_anywhere(routers: int) -> None:
    ours = world(routers, [Spot("a", slots=2)], rules(order="strict"), by_class)
    running = [ours.come(number=float(NORMAL), tokens=100, output=1000) for _ in range(6)]
    ours.run(1.0)
    high = ours.come(number=float(HIGH), **SHORT)
    low = ours.come(number=float(LOW), **SHORT)
    ours.run(0.1)
    assert high.state == low.state == WAITING
    ours.leave(high)
    ours.run(TOLD_S)
    began = ours.now
    for ticket in running:
        ours.leave(ticket)
    ours.run(1.0)
    assert ours.started[low] - began <= TOLD_S
    assert high not in ours.started
    ours.assert_empty()


@over
@pytest.mark.parametrize("patience_s", [0.06, 1e6])
def test_a_router_that_dies_keeps_no_slot_free(routers: int, patience_s: float) -> None:
    """The router of class high dies with all its requests. `patience_s`: with the second one, the
    others would leave each slot free for ever while the dead router's requests wait."""
    ours = world(routers, [Spot("a", slots=4)], rules(order="strict"), by_class)
    high = [ours.come(number=float(HIGH), **SHORT) for _ in range(40)]
    ours.run(0.5)
    low = [ours.come(number=float(LOW), **SHORT) for _ in range(12)]
    ours.run(0.5)
    assert {ticket.state for ticket in low} == {WAITING}
    if isinstance(ours, Routers):
        for side in ours.sides:
            side.pools.elsewhere.patience_s = patience_s
        ours.dies(HIGH)
    else:
        for ticket in [ticket for ticket in high if ticket.state in (SENT, WAITING)]:
            ours.leave(ticket)
    ours.run((LOST_S + INTERVAL_S) * (routers > 1) + 1.5)
    assert all(ticket in ours.started for ticket in low)


@over
def test_three_routers_serve_as_much_as_one(routers: int) -> None:
    """At least 90 % of one router, while all classes and accounts wait."""
    rng = Random(3)
    ours = world(routers, [Spot("a", slots=4), Spot("b", slots=4)])
    for _ in range(500):
        ours.come(
            number=float(rng.randrange(1, 5)),
            key=f"k{rng.randrange(6)}",
            tokens=rng.randrange(50, 400),
            output=rng.randrange(5, 40),
        )
    ours.run(12.0)
    served = sum(map(cost, ours.done))
    assert served >= 0.9 * 53_900
