"""Which ticket gets a place: first its class is chosen, then the lane, then the ticket."""

import pytest

from policies.queueing.ticket import Ticket
from router.admission.extra import Extra
from router.core.urgency import CLASSES
from tests.admission.parts import PATIENT, Parts
from tests.admission.world import Spot, every_class, holds

STRICT = {
    "order": "strict",
    "policy": "fifo",
    "batch_becomes_normal_after_s": 0.0,
    "classes": every_class(**PATIENT),
}
WEIGHTED = {**STRICT, "order": "weighted"}


def numbers(tickets: list[Ticket]) -> list[float]:
    return [ticket.number for ticket in tickets]


# -- the class --------------------------------------------------------------------------------


def test_strictly_the_most_urgent_class_goes_first() -> None:
    spot = Spot("a")
    parts = Parts(spot, **STRICT)
    for number in (4.0, 2.0, 0.0, 3.0, 1.0, 2.0):
        parts.waits(number=number)
    assert numbers(parts.served(spot)) == [0.0, 1.0, 2.0, 2.0, 3.0, 4.0]


def test_classes_have_turns_by_weight() -> None:
    spot = Spot("a")
    classes = {"high": {**PATIENT, "weight": 3.0}, "low": {**PATIENT, "weight": 1.0}}
    parts = Parts(spot, **{**WEIGHTED, "classes": classes})
    for _ in range(40):
        parts.waits(number=1.0, tokens=99)
        parts.waits(number=3.0, tokens=99)
    assert numbers(parts.served(spot, most=40)).count(1.0) == pytest.approx(30, abs=1)


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


@pytest.mark.parametrize("order", ["weighted", "strict"])
def test_batch_has_turns_by_weight_at_a_full_replica_while_low_waits(order: str) -> None:
    """The replica gets one more request in both cases, so the headroom is not kept free."""
    spot = Spot("a", slots=16)
    spot.inflight = spot.load = 16
    parts = Parts(spot, **{**WEIGHTED, "order": order})
    parts.headroom.own = 1.0  # batch leaves a quarter of the slots free
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
    parts.gates.of(spot).facts.batch = 4
    assert parts.chosen(spot) is low
    parts.gates.of(spot).facts.batch = 3
    assert parts.chosen(spot) is not low


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


# -- the lane and the ticket ------------------------------------------------------------------


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


def test_a_starving_ticket_goes_first_where_the_policy_may_pass_it_over() -> None:
    spot = Spot("a")
    classes = every_class(wait_s=1e6, starvation_s=10.0)
    parts = Parts(spot, **{**STRICT, "policy": "shortest", "classes": classes})
    long = parts.waits(0.0, tokens=9000)
    long.class_queue.promote(100.0, 7.5, 9)
    short = parts.waits(100.0, tokens=1)
    assert parts.served(spot, 100.0) == [long, short]


# -- extras -----------------------------------------------------------------------------------


class Refuses(Extra):
    """Allows tickets of a class up to a number of tokens; other classes without a limit."""

    def __init__(self, **most: int) -> None:
        self.most = {CLASSES.index(name): tokens for name, tokens in most.items()}

    def allows(self, ticket: Ticket) -> bool:
        return ticket.view.prompt_tokens <= self.most.get(ticket.urgency, 10**9)


def test_a_class_that_an_extra_does_not_allow_does_not_go() -> None:
    spot = Spot("a")
    parts = Parts(spot, **STRICT)
    refuses = Refuses()
    parts.use(refuses)
    normal, low = parts.waits(number=2.0, tokens=10), parts.waits(number=3.0, tokens=10)
    assert parts.chosen(spot) is normal
    refuses.most[2] = 9
    assert parts.chosen(spot) is low
    refuses.most[3] = 0
    assert parts.chosen(spot) is None


def test_a_ticket_that_is_chosen_for_its_prefix_must_be_allowed_too() -> None:
    spot = Spot("a")
    parts = Parts(spot, **STRICT)
    refuses = Refuses(normal=100)
    parts.use(refuses)
    small = parts.waits(tokens=10)
    large = parts.waits(tokens=500, look=holds({spot: 40}), block_tokens=10.0)
    assert parts.chosen(spot) is small
    refuses.most[2] = 500
    assert parts.chosen(spot) is large
