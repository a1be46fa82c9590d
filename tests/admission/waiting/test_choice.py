"""Which ticket gets a place: first its class is chosen, then the lane, then the ticket."""

from __future__ import annotations

import pytest

from policies.queueing.ticket import Ticket
from router.admission.waiting.choice import MOST_COST, cost
from router.core.urgency import LOW
from tests.admission.parts import PATIENT, Parts
from tests.admission.world import Spot, every_class, holds
from tests.tickets import make_ticket

STRICT = {
    "order": "strict",
    "policy": "fifo",
    "batch_becomes_normal_after_s": 0.0,
    "classes": every_class(**PATIENT),
}
WEIGHTED = {**STRICT, "order": "weighted"}


def numbers(tickets: list[Ticket]) -> list[float]:
    return [ticket.number for ticket in tickets]


def test_the_cost_of_a_turn() -> None:
    assert cost(make_ticket(tokens=100, output=20)) == 141.0
    assert cost(make_ticket(tokens=0, output=-1)) == 1.0  # no prediction; minimum cost 1
    assert cost(make_ticket(tokens=10**9, output=10)) == MOST_COST
    assert cost(make_ticket(tokens=10, output=10**9)) == MOST_COST


def test_no_ticket_waits() -> None:
    parts = Parts(Spot("a"), **STRICT)
    assert parts.chosen(parts.stand.spots[0]) is None


def test_a_choice_changes_nothing_that_waits() -> None:
    spot = Spot("a")
    parts = Parts(spot, **STRICT)
    one = parts.waits()
    assert parts.chosen(spot) is parts.chosen(spot) is one
    assert parts.wait_lists.count == 1


# -- the class --------------------------------------------------------------------------------


def test_strictly_the_most_urgent_class_goes_first() -> None:
    spot = Spot("a")
    parts = Parts(spot, **STRICT)
    for number in (4.0, 2.0, 0.0, 3.0, 1.0, 2.0):
        parts.waits(number=number)
    assert numbers(parts.served(spot)) == [0.0, 1.0, 2.0, 2.0, 3.0, 4.0]


def test_critical_goes_before_turns_and_uses_none() -> None:
    spot = Spot("a")
    parts = Parts(spot, **WEIGHTED)
    for number in (1.0, 0.0, 1.0, 0.0):
        parts.waits(number=number)
    assert numbers(parts.served(spot)) == [0.0, 0.0, 1.0, 1.0]


def test_classes_have_turns_by_weight() -> None:
    spot = Spot("a")
    classes = {"high": {**PATIENT, "weight": 3.0}, "low": {**PATIENT, "weight": 1.0}}
    parts = Parts(spot, **{**WEIGHTED, "classes": classes})
    for _ in range(40):
        parts.waits(number=1.0, tokens=99)
        parts.waits(number=3.0, tokens=99)
    assert numbers(parts.served(spot, most=40)).count(1.0) == pytest.approx(30, abs=1)


def test_together_the_policy_compares_all_classes() -> None:
    spot = Spot("a")
    parts = Parts(spot, **{**STRICT, "order": "together"})
    expected = [parts.waits(number=number) for number in (4.0, 0.0, 2.0)]
    assert parts.served(spot) == expected


def test_a_starving_class_has_every_other_turn() -> None:
    spot = Spot("a")
    classes = every_class(wait_s=1e6, starvation_s=10.0)
    parts = Parts(spot, **{**STRICT, "classes": classes})
    for _ in range(5):
        parts.waits(number=3.0)
    for class_queue in parts.wait_lists.active[""].all_queues():
        class_queue.promote(100.0, 7.5, 99)
    for _ in range(5):
        parts.waits(100.0, number=1.0)
    order = numbers(parts.served(spot, 100.0))
    assert order == [3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0]


def test_starving_classes_take_turns() -> None:
    spot = Spot("a")
    parts = Parts(spot, **{**STRICT, "classes": every_class(wait_s=1e6, starvation_s=10.0)})
    for number in (2.0, 3.0, 4.0):
        for _ in range(3):
            parts.waits(number=number)
    for class_queue in parts.wait_lists.active[""].all_queues():
        class_queue.promote(100.0, 7.5, 99)
    for _ in range(20):
        parts.waits(100.0, number=1.0)
    order = numbers(parts.served(spot, 100.0, most=12))
    assert order[1::2] == [1.0] * 6
    assert sorted(order[0:6:2]) == sorted(order[6:12:2]) == [2.0, 3.0, 4.0]


# -- the gate ---------------------------------------------------------------------------------


def closed_to_batch() -> Spot:
    spot = Spot("a")
    spot.inflight = spot.waiting = spot.load = 1
    return spot


def test_a_gate_that_is_closed_to_a_class_takes_another_class() -> None:
    spot = closed_to_batch()
    parts = Parts(spot, **STRICT)
    parts.waits(number=4.0)
    assert parts.chosen(spot) is None
    normal = parts.waits(number=2.0)
    assert parts.chosen(spot) is normal


def test_batch_has_turns_by_weight_while_high_waits() -> None:
    """A request waits at the replica, so its gate is closed to class batch."""
    spot = closed_to_batch()
    classes = {"high": {**PATIENT, "weight": 3.0}, "batch": {**PATIENT, "weight": 1.0}}
    parts = Parts(spot, **{**WEIGHTED, "classes": classes})
    for _ in range(40):
        parts.waits(number=4.0, tokens=99)
    assert parts.chosen(spot) is None
    for _ in range(30):
        parts.waits(number=1.0, tokens=99)
    order = numbers(parts.served(spot))
    assert order.count(1.0) == 30  # after the last of them, batch waits again
    assert order.count(4.0) == pytest.approx(10, abs=1)


@pytest.mark.parametrize("number", [2.0, 3.0])
def test_batch_has_turns_by_weight_while_normal_or_low_waits(number: float) -> None:
    spot = closed_to_batch()
    classes = {**every_class(**PATIENT, weight=3.0), "batch": {**PATIENT, "weight": 1.0}}
    parts = Parts(spot, **{**WEIGHTED, "classes": classes})
    for _ in range(40):
        parts.waits(number=4.0, tokens=99)
    for _ in range(30):
        parts.waits(number=number, tokens=99)
    assert numbers(parts.served(spot, most=36)).count(4.0) == pytest.approx(9, abs=1)


@pytest.mark.parametrize("order", ["strict", "together"])
def test_without_turns_by_weight_low_goes_before_batch(order: str) -> None:
    spot = closed_to_batch()
    parts = Parts(spot, **{**WEIGHTED, "order": order})
    parts.waits(number=4.0)
    for _ in range(9):
        parts.waits(number=3.0, tokens=1000)
    assert set(numbers(parts.served(spot))) == {3.0}


def test_batch_that_is_behind_its_share_has_the_limit_of_the_other_classes() -> None:
    """No other ticket waits: the requests of class low are sent at once."""
    spot = closed_to_batch()
    parts = Parts(spot, **WEIGHTED)
    for _ in range(9):
        parts.waits(number=4.0, tokens=100)
    assert parts.chosen(spot) is None
    parts.choice.stride.serves(LOW, 1000.0, float(LOW))
    # Half of the cost, because batch has half of the weight of low.
    assert len(parts.served(spot)) == 5
    parts.choice.stride.serves(LOW, 10_000.0, float(LOW))
    spot.inflight = spot.waiting = spot.load = 3  # the limit of the other classes
    assert parts.chosen(spot) is None


@pytest.mark.parametrize("order", ["strict", "together"])
def test_without_turns_by_weight_batch_is_never_behind(order: str) -> None:
    spot = closed_to_batch()
    parts = Parts(spot, **{**WEIGHTED, "order": order})
    parts.waits(number=4.0)
    parts.choice.stride.serves(LOW, 1000.0, float(LOW))
    assert parts.chosen(spot) is None


@pytest.mark.parametrize("is_aged", [False, True])
def test_batch_that_is_behind_its_share_leaves_the_headroom_free(is_aged: bool) -> None:
    spot = Spot("a", slots=16)
    spot.inflight = spot.load = 13
    parts = Parts(spot, **{**WEIGHTED, "batch_becomes_normal_after_s": 1.0 * is_aged})
    parts.waits(number=4.0)
    parts.choice.stride.serves(LOW, 1000.0, float(LOW))
    parts.headroom.level = 1.0  # batch leaves a quarter of the slots free
    assert parts.chosen(spot, 100.0) is None
    parts.headroom.level = 0.0
    assert parts.chosen(spot, 100.0) is not None


def test_aged_batch_tickets_are_not_sent_all_at_once() -> None:
    spot = Spot("a", slots=16)
    aging = {**WEIGHTED, "batch_becomes_normal_after_s": 20.0}
    aging["classes"] = every_class(**PATIENT, prefill_tokens=8192)
    aging["classes"]["batch"] = {**PATIENT, "prefill_tokens": 0}
    parts = Parts(spot, **aging)
    old = [parts.waits(0.0, number=4.0, tokens=1) for _ in range(9)]
    spot.inflight = spot.waiting = spot.load = 2
    assert parts.chosen(spot, 4.0) is None
    assert parts.chosen(spot, 20.0) is old[0]
    spot.inflight = spot.waiting = spot.load = 3
    assert parts.chosen(spot, 20.0) is None
    low = parts.waits(20.0, number=3.0, tokens=1)  # one prefill batch may wait
    parts.choice.stride.passes[3] = 1e9
    assert parts.chosen(spot, 20.0) is low


def test_batch_has_turns_at_a_slot_that_is_kept_free_while_any_other_class_waits() -> None:
    spot = Spot("a", slots=16)
    spot.inflight = spot.load = 13
    parts = Parts(spot, **WEIGHTED)
    parts.headroom.level = 1.0  # batch leaves a quarter of the slots free
    batch = parts.waits(number=4.0)
    assert parts.chosen(spot) is None
    parts.waits(number=3.0)
    parts.choice.stride.passes[3] = 1e9
    assert parts.chosen(spot) is batch


@pytest.mark.parametrize("order", ["weighted", "strict"])
def test_batch_has_turns_by_weight_at_a_full_replica_while_low_waits(order: str) -> None:
    """The replica gets one more request in both cases, so the headroom is not kept free."""
    spot = Spot("a", slots=16)
    spot.inflight = spot.load = 16
    parts = Parts(spot, **{**WEIGHTED, "order": order})
    parts.headroom.level = 1.0  # batch leaves a quarter of the slots free
    batch = parts.waits(number=4.0)
    assert parts.chosen(spot) is None
    low = parts.waits(number=3.0)
    parts.choice.stride.passes[3] = 1e9
    assert parts.chosen(spot) is (batch if order == "weighted" else low)


def test_batch_keeps_its_share_of_the_slots_in_its_turn() -> None:
    spot = Spot("a", slots=16)
    classes = {**WEIGHTED["classes"], "batch": {**PATIENT, "slots": 0.25}}
    parts = Parts(spot, **{**WEIGHTED, "classes": classes})
    parts.waits(number=4.0)
    low = parts.waits(number=3.0)
    parts.choice.stride.passes[3] = 1e9
    parts.gates.of(spot).batch = 4
    assert parts.chosen(spot) is low
    parts.gates.of(spot).batch = 3
    assert parts.chosen(spot) is not low


def test_batch_has_no_turns_while_another_limit_closes_the_gate() -> None:
    spot = closed_to_batch()
    spot.kv_usage = 0.9  # above the limit of class batch
    parts = Parts(spot, **WEIGHTED)
    parts.waits(number=4.0)
    for _ in range(9):
        parts.waits(number=1.0, tokens=1000)
    assert set(numbers(parts.served(spot))) == {1.0}


@pytest.mark.parametrize(("age_s", "goes"), [(4.0, False), (20.0, True)])
def test_the_age_of_batch_changes_the_limit_of_kv_cache_in_its_turn(
    age_s: float, goes: bool
) -> None:
    spot = closed_to_batch()
    spot.kv_usage = 0.92  # above the limits of batch and low
    parts = Parts(spot, **{**WEIGHTED, "batch_becomes_normal_after_s": 20.0})
    batch = parts.waits(0.0, number=4.0)
    parts.choice.stride.serves(LOW, 1000.0, float(LOW))
    assert (parts.chosen(spot, age_s) is batch) is goes


@pytest.mark.parametrize("is_contested", [False, True])
def test_an_old_batch_ticket_does_not_go_first_in_a_turn(is_contested: bool) -> None:
    """The class has the turn because of the old ticket; the order policy chooses the ticket."""
    spot = closed_to_batch()
    shortest = {**WEIGHTED, "policy": "shortest", "batch_becomes_normal_after_s": 20.0}
    parts = Parts(spot, **shortest)
    parts.waits(0.0, number=4.0, tokens=900)
    young = parts.waits(20.0, number=4.0, tokens=1)
    if is_contested:
        parts.waits(20.0, number=1.0)
        parts.choice.stride.passes[1] = 1e9
    assert parts.chosen(spot, 20.0) is young


def test_the_turn_of_starved_batch_is_for_a_starved_ticket() -> None:
    spot = closed_to_batch()
    # The order policy itself prevents starvation within a class.
    parts = Parts(spot, **{**WEIGHTED, "policy": "fair"})
    old = parts.waits(0.0, number=4.0, key="served much")
    old.class_queue.promote(100.0, 1.0, 9)
    parts.order.settled(_charged("served much"), 10**6, 0)
    young = parts.waits(100.0, number=4.0, key="served little")
    assert old.class_queue.line.first(100.0) is young
    parts.waits(100.0, number=1.0)
    assert parts.chosen(spot, 100.0) is old


def _charged(key: str) -> Ticket:
    ticket = make_ticket(number=4.0, key=key)
    ticket.charged = 0.0
    return ticket


@pytest.mark.parametrize("first", ["m", "n"])
def test_the_batch_ticket_that_ranks_first_has_the_turn_whatever_its_lane(first: str) -> None:
    spot = closed_to_batch()
    parts = Parts(spot, **WEIGHTED)
    parts.waits(number=1.0, model="m")
    expected = parts.waits(number=4.0, model=first)
    parts.waits(number=4.0, model="n" if first == "m" else "m")
    parts.choice.stride.passes[1] = 1e9
    assert parts.chosen(spot) is expected


def test_a_gate_that_only_age_has_opened_is_for_tickets_of_that_age() -> None:
    spot = Spot("a")
    spot.inflight = spot.load = 1
    spot.kv_usage = 0.92  # above the limit of class low
    shortest = {**STRICT, "policy": "shortest", "batch_becomes_normal_after_s": 20.0}
    parts = Parts(spot, **shortest)
    old = parts.waits(0.0, number=3.0, tokens=900)
    parts.waits(20.0, number=3.0, tokens=1)  # first ticket of its class queue
    assert parts.chosen(spot, 2.0) is None
    assert parts.chosen(spot, 20.0) is old
    assert parts.choice.gate(old.class_queue, old, 20.0) == 1


def test_age_opens_no_gate_to_batch_until_a_ticket_is_starved() -> None:
    parts = Parts(Spot("a"), **{**STRICT, "batch_becomes_normal_after_s": 20.0})
    old = parts.waits(0.0, number=4.0)
    assert parts.choice.gate(old.class_queue, old, 20.0) == 4
    old.class_queue.promote(20.0, 1.0, 9)
    assert parts.choice.gate(old.class_queue, old, 20.0) == 2


def test_a_starved_ticket_passes_the_gate_of_class_normal() -> None:
    spot = closed_to_batch()
    parts = Parts(spot, **STRICT)
    old = parts.waits(0.0, number=4.0)
    assert parts.choice.gate(old.class_queue, old, 0.0) == 4
    old.class_queue.promote(100.0, 1.0, 9)
    assert parts.choice.gate(old.class_queue, old, 100.0) == 2
    assert parts.chosen(spot, 100.0) is old


# -- the lane and the ticket ------------------------------------------------------------------


def test_only_lanes_that_the_replica_serves() -> None:
    here, there = Spot("here"), Spot("there")
    parts = Parts(here, there, **STRICT)
    parts.stand.lanes = {"m": [here], "n": [there]}
    first, second = parts.waits(model="n"), parts.waits(model="m")
    assert parts.chosen(here) is second
    assert parts.chosen(there) is first


def test_of_two_lanes_the_one_whose_first_ticket_ranks_first() -> None:
    spot = Spot("a")
    parts = Parts(spot, **STRICT)
    first, second, third = (parts.waits(model=model) for model in ("n", "m", "n"))
    assert parts.served(spot) == [first, second, third]


def test_a_ticket_that_must_not_go_there_blocks_no_other() -> None:
    here, there = Spot("here"), Spot("there")
    parts = Parts(here, there, **STRICT)
    tried = parts.waits(excluded=(here,))
    next_in_line, less_urgent = parts.waits(), parts.waits(number=3.0)
    assert parts.chosen(here) is next_in_line
    assert parts.chosen(there) is tried
    parts.leaves(next_in_line)
    assert parts.chosen(here) is less_urgent
    parts.leaves(less_urgent)
    assert parts.chosen(here) is None


def test_a_ticket_whose_prefix_is_there_goes_first_and_only_so_often() -> None:
    spot = Spot("a")
    parts = Parts(spot, **{**STRICT, "skips": 2})
    first = parts.waits(tokens=100)
    cached = [parts.waits(tokens=100, look=holds({spot: 5}), block_tokens=10.0) for _ in range(4)]
    assert parts.served(spot) == [*cached[:2], first, *cached[2:]]


def test_without_affinity_the_line_alone_decides() -> None:
    spot = Spot("a")
    parts = Parts(spot, **{**STRICT, "affinity": 0})
    first = parts.waits(tokens=100)
    parts.waits(tokens=100, look=holds({spot: 5}), block_tokens=10.0)
    assert parts.chosen(spot) is first


def test_a_starving_ticket_goes_first_where_the_policy_may_pass_it_over() -> None:
    spot = Spot("a")
    classes = every_class(wait_s=1e6, starvation_s=10.0)
    parts = Parts(spot, **{**STRICT, "policy": "shortest", "classes": classes})
    long = parts.waits(0.0, tokens=9000)
    long.class_queue.promote(100.0, 7.5, 9)
    short = parts.waits(100.0, tokens=1)
    assert parts.served(spot, 100.0) == [long, short]


# -- reservations -----------------------------------------------------------------------------


def test_a_class_beyond_its_share_does_not_go() -> None:
    spot = Spot("a")
    parts = Parts(spot, **{**STRICT, "reservations": {"enabled": True, "strict": True}})
    parts.reservations.capacity = 1000.0
    normal, low = parts.waits(number=2.0, tokens=10), parts.waits(number=3.0, tokens=10)
    assert parts.chosen(spot) is normal
    parts.reservations.used[2] = 400  # the class's whole share
    assert parts.chosen(spot) is low
    parts.reservations.used[3] = 1000
    assert parts.chosen(spot) is None


def test_a_ticket_that_is_chosen_for_its_prefix_must_fit_too() -> None:
    spot = Spot("a")
    parts = Parts(spot, **{**STRICT, "reservations": {"enabled": True}})
    parts.reservations.capacity = 1000.0
    parts.reservations.used[2] = 900
    small = parts.waits(tokens=10)
    large = parts.waits(tokens=500, look=holds({spot: 40}), block_tokens=10.0)
    assert parts.chosen(spot) is small
    parts.reservations.used[2] = 0
    assert parts.chosen(spot) is large
