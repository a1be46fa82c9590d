"""A replica is left free for a request that waits at another router and goes first."""

from typing import Any

import pytest

from policies.queueing.base import OrderPolicy
from policies.queueing.contract import make_order
from policies.queueing.ticket import SENT, WAITING, Ticket
from policies.queueing.ticket_queue import TicketQueue
from router.admission.elsewhere import _PAUSE_S, Elsewhere
from router.core.lease import others_counted
from router.core.urgency import BATCH, CRITICAL, HIGH, LOW, NORMAL
from tests.admission.world import Spot, World, config
from tests.tickets import make_ticket

PATIENCE_S = 0.06


def place(**rules: Any) -> tuple[World, Spot, Elsewhere]:
    spot = Spot("a", slots=4, limit=100)
    world = World([spot], config(**rules))
    elsewhere = world.queue.elsewhere
    elsewhere.patience_s = PATIENCE_S
    return world, spot, elsewhere


def come(world: World, urgency: int = BATCH, **facts: Any) -> Ticket:
    return world.come(number=float(urgency), tokens=10, output=10, **facts)


def test_batch_leaves_a_slot_to_a_more_urgent_request_for_a_moment() -> None:
    world, _, elsewhere = place()
    elsewhere.adopt([("", HIGH, world.now)])
    ticket = come(world)
    assert ticket.state == WAITING
    world.run(PATIENCE_S * 0.9)
    assert ticket.state == WAITING
    world.run(PATIENCE_S * 0.2)
    assert ticket.state == SENT  # the other router has not come
    assert come(world).state == SENT  # and is not waited for again
    world.run(_PAUSE_S)
    assert come(world).state == WAITING


def test_the_time_begins_again_when_the_other_router_takes_a_slot() -> None:
    world, spot, elsewhere = place()
    elsewhere.adopt([("", HIGH, world.now)])
    ticket = come(world)
    world.run(PATIENCE_S * 0.5)
    others_counted(spot, 0, 1, 0)
    world.free(spot)
    world.run(PATIENCE_S * 0.9)
    assert ticket.state == WAITING
    elsewhere.adopt([])
    world.free(spot)
    assert ticket.state == SENT


def test_the_time_does_not_begin_again_when_this_router_takes_a_slot() -> None:
    world, spot, elsewhere = place()
    spot.slots = spot.engine_slots = 100
    world.free(spot)
    elsewhere.adopt([("", HIGH, world.now)])
    ticket = come(world)
    for _ in range(3):
        world.run(PATIENCE_S * 0.4)
        assert come(world, CRITICAL).state == SENT
    assert ticket.state == SENT


def test_no_time_is_set_while_a_replica_is_kept_until_its_load_changes() -> None:
    world, spot, elsewhere = place()
    world.queue.headroom.answered(0.0, 0.0, 1.0, world.now, is_behind_batch=False)
    world.queue.headroom.own = 1.0
    others_counted(spot, 0, 4, 0)
    world.free(spot)
    elsewhere.adopt([("", HIGH, world.now)])
    ticket = make_ticket(arrival=world.now, number=float(NORMAL))
    assert not world.queue.offer(ticket, world.now)
    assert world.queue.next_at > world.now


def test_a_policy_that_fails_yields_to_nobody() -> None:
    class Failing(OrderPolicy):
        """A user's policy: its requests are not compared with those of other routers."""

        def line(self, urgency: int) -> TicketQueue:
            return make_order("fifo").line(urgency)

        def yields(self, ticket: Ticket) -> bool:
            raise KeyError("x")

    world, _, elsewhere = place(policy="fair")
    world.queue.rules.order = Failing()
    elsewhere.adopt([("", NORMAL, world.now)])
    assert come(world, NORMAL).state == SENT
    assert "yields" in world.queue._orders.failures.texts[0]


def test_an_urgent_request_that_needs_a_slot_is_waited_for_until_there_is_one() -> None:
    world, spot, elsewhere = place()
    world.queue.headroom.own = 1.0  # falls at once, because no urgent answer came for long
    others_counted(spot, 0, 4, 0)
    world.free(spot)
    elsewhere.adopt([("", HIGH, world.now)])
    ticket = come(world)
    world.run(10 * PATIENCE_S)
    assert ticket.state == WAITING
    others_counted(spot, 0, 3, 0)
    world.at(world.now, lambda: world.free(spot))
    world.run(PATIENCE_S * 0.9)
    assert ticket.state == WAITING
    world.run(PATIENCE_S * 0.2)
    assert ticket.state == SENT


@pytest.mark.parametrize(
    ("own", "other", "waits"),
    [
        (CRITICAL, CRITICAL, False),
        (HIGH, CRITICAL, True),
        (HIGH, NORMAL, False),
        (NORMAL, HIGH, True),
        (LOW, LOW, False),
        (LOW, BATCH, False),
    ],
)
def test_classes(own: int, other: int, waits: bool) -> None:
    world, _, elsewhere = place()
    elsewhere.adopt([("", other, world.now)])
    assert (come(world, own).state == WAITING) is waits


def test_a_critical_ticket_waits_for_nobody() -> None:
    world, _, elsewhere = place(policy="fifo")
    elsewhere.adopt([("", CRITICAL, world.now - 9.0)])
    assert come(world, CRITICAL).state == SENT


def test_a_late_look_ends_the_time_too() -> None:
    world, spot, elsewhere = place()
    elsewhere.adopt([("", HIGH, world.now)])
    ticket = make_ticket(arrival=world.now, number=float(BATCH))
    gate = world.queue.gates.of(spot)
    times_s = (0.0, 0.5 * PATIENCE_S, 1.5 * PATIENCE_S, 0.9 * _PAUSE_S, 2.0 * _PAUSE_S)
    held = [
        world.queue.yielding.holds(gate, ticket, float(BATCH), world.now + after_s)
        for after_s in times_s
    ]
    assert held == [True, True, False, False, True]


@pytest.mark.parametrize(("served", "waits"), [(0.0, True), (1.0, False)])
def test_classes_take_turns_by_weight_over_all_routers(served: float, waits: bool) -> None:
    world, _, elsewhere = place()
    elsewhere.adopt([("", NORMAL, world.now)])
    world.queue.stride.waits_elsewhere([False, False, True, False, False])
    world.queue.stride.served_elsewhere(NORMAL, served)
    assert (come(world, LOW).state == WAITING) is waits


def test_age_counts_at_other_routers_too() -> None:
    world, _, elsewhere = place(order="strict")
    elsewhere.adopt([("", BATCH, world.now - 3600.0)])
    assert come(world, LOW).state == WAITING


@pytest.mark.parametrize(("older_s", "waits"), [(0.2, False), (0.3, True)])
def test_with_one_order_for_all_classes_only_the_policy_decides(
    older_s: float, waits: bool
) -> None:
    world, _, elsewhere = place(order="together", policy="fifo")
    elsewhere.adopt([("", HIGH, world.now), ("", BATCH, world.now - older_s)])
    assert (come(world, LOW).state == WAITING) is waits


@pytest.mark.parametrize(("older_s", "waits"), [(0.2, False), (0.3, True)])
def test_within_a_class_the_oldest_goes_first_if_the_policy_orders_by_arrival(
    older_s: float, waits: bool
) -> None:
    world, _, elsewhere = place(policy="fifo")
    elsewhere.adopt([("", NORMAL, world.now - older_s)])
    assert (come(world, NORMAL).state == WAITING) is waits


@pytest.mark.parametrize(("charged", "waits"), [(8000.0, False), (8300.0, True)])
def test_within_a_class_the_account_that_was_served_least_goes_first(
    charged: float, waits: bool
) -> None:
    world, _, elsewhere = place(policy="fair")
    elsewhere.adopt([("", NORMAL, world.now)])
    keys = world.queue.rules.order.books[NORMAL].keys  # type: ignore[attr-defined]
    keys.begins_elsewhere("away", 1.0)
    keys.correct("here", 1.0, charged)
    assert (come(world, NORMAL, key="here").state == WAITING) is waits


def test_other_models_do_not_count() -> None:
    world, spot, elsewhere = place()
    world.pool.lanes = {"other": [], "": [spot]}
    elsewhere.adopt([("other", HIGH, world.now)])
    assert come(world).state == SENT


def test_a_starved_class_waits_for_every_other_slot_only() -> None:
    classes = {"normal": {"starvation_s": 4.0}}
    world, spot, elsewhere = place(classes=classes, gates={"waiting": 1})
    spot.limit = 0
    world.free(spot)
    tickets = [come(world, NORMAL) for _ in range(3)]
    world.run(3.5)  # starved
    elsewhere.adopt([("", HIGH, world.now)])
    spot.limit = 100
    world.free(spot)
    assert [ticket.state for ticket in tickets] == [WAITING] * 3
    others_counted(spot, 0, 1, 0)  # taken
    world.free(spot)
    assert [ticket.state for ticket in tickets].count(SENT) == 0
    world.free(spot)
    assert [ticket.state for ticket in tickets].count(SENT) == 1


def test_every_other_slot_is_left_to_a_class_that_is_starved_elsewhere() -> None:
    world, spot, elsewhere = place(order="strict", classes={"low": {"starvation_s": 4.0}})
    elsewhere.adopt([("", LOW, world.now - 2.9)])
    assert come(world, HIGH).state == SENT
    elsewhere.adopt([("", LOW, world.now - 3.1)])
    ticket = come(world, HIGH)
    assert ticket.state == WAITING
    others_counted(spot, 0, 1, 0)  # taken
    world.free(spot)
    assert ticket.state == SENT
    assert come(world, CRITICAL).state == SENT
    ticket = come(world, HIGH)
    assert ticket.state == WAITING
    world.run(PATIENCE_S * 1.1)
    assert ticket.state == SENT  # the other router has not come
    assert come(world, HIGH).state == SENT  # and is not waited for again


def test_a_starved_ticket_takes_a_slot_that_another_router_has_left_to_it() -> None:
    classes = {"normal": {"starvation_s": 4.0}}
    world, spot, elsewhere = place(order="strict", classes=classes, gates={"waiting": 1})
    elsewhere.adopt([("", HIGH, world.now)])
    others_counted(spot, 4, 4, 0)
    world.free(spot)
    tickets = [come(world, NORMAL) for _ in range(2)]
    world.run(3.5)  # starved
    world.queue.gates.of(spot).kept_load = 4
    others_counted(spot, 0, 3, 0)
    world.free(spot)
    assert [ticket.state for ticket in tickets].count(SENT) == 1


def test_a_request_elsewhere_may_use_a_replica_whose_gate_is_open_to_its_class() -> None:
    world, spot, elsewhere = place()
    gate = world.queue.gates.of(spot)
    elsewhere.adopt([("", NORMAL, world.now)])
    assert world.queue.yielding.may_use(gate, NORMAL)
    assert not world.queue.yielding.may_use(gate, HIGH)
    spot.limit = 0
    world.free(spot)
    assert not world.queue.yielding.may_use(gate, NORMAL)
