"""A reload changes the rules for waiting requests and loses none of them."""

import pytest

from policies.queueing.contract import order_names
from policies.queueing.ticket import CLASSES, WAITING
from policies.registry import PolicyConfigError
from tests.addons.needed import needs
from tests.admission.extras import asked, held_tokens, listed, used_tokens
from tests.admission.world import Spot, World, config

NARROW = {"prefill_tokens": 0}


@pytest.mark.parametrize("name", order_names())
def test_waiting_requests_keep_waiting_when_the_order_changes(name: str) -> None:
    world = World([Spot("a")], config(gates=NARROW))
    tickets = [world.come(key=f"k{n % 3}", tokens=1000, output=10) for n in range(20)]
    world.run(0.25)
    world.leave(tickets[10])
    world.queue.adopt(config(gates=NARROW, policy=name))
    more = [world.come(key=f"k{n % 3}", tokens=1000, output=10) for n in range(20)]
    world.run(60.0)
    assert len(world.done) == len(tickets) + len(more) - 1
    world.assert_empty()


def test_new_gates_apply_at_once() -> None:
    world = World([Spot("a")], config(gates=NARROW))
    for _ in range(20):
        world.come(tokens=9000, output=10)
    assert len(world.started) == 3
    world.queue.adopt(config(gates={**NARROW, "waiting": 10}))
    world.tick()
    assert len(world.started) == 10
    world.queue.adopt(config(gates={**NARROW, "waiting": 1}))
    world.run(7.0)
    assert world.pool.spots[0].waiting <= 3


def test_a_policy_that_cannot_be_made_changes_nothing() -> None:
    world = World([Spot("a")], config(gates=NARROW))
    tickets = [world.come(tokens=1000, output=10) for _ in range(10)]
    with pytest.raises(PolicyConfigError):
        world.queue.adopt(config(policy="nonsense", gates={"waiting": 100}))
    assert len(world.started) == 3
    world.run(20.0)
    assert all(ticket in world.done for ticket in tickets)


@pytest.mark.parametrize("is_put_back", [False, True])
def test_charges_of_the_old_policy_are_not_refunded_by_the_new_one(is_put_back: bool) -> None:
    """The policies charge in different units: tokens, and turns."""
    world = World([Spot("a", slots=4)], config(gates=NARROW, policy="fair"))
    tickets = [world.come(key=f"k{n % 2}", tokens=3000, output=10) for n in range(6)]
    charged = [ticket for ticket in tickets if ticket in world.started]
    assert len(charged) == 3
    world.leave(charged[0])
    late = [ticket for ticket in tickets if ticket in world.started and ticket not in charged]
    assert late[0].charged > 3000.0
    turns = config(gates=NARROW, policy="round_robin")
    world.queue.adopt(turns)
    world.tick()
    if is_put_back:
        world._put_back(late[0])
    else:
        world.leave(late[0])
    line = world.queue.wait_lists.active[""].class_queues[2].line
    for account in line.book.keys.by_name.values():
        assert 0.0 <= account.counter <= 3.0
    world.run(60.0)
    world.assert_empty()


def used(world: World) -> list[int]:
    return [used_tokens(world.queue, urgency) for urgency in range(CLASSES)]


@needs("reservations")
def test_enabling_reservations_counts_running_requests_at_once() -> None:
    spot = Spot("a", slots=None, limit=100)
    spot.kv_tokens = 10_000
    spot.prefills = True  # no request ends by itself
    open_to_all = {"waiting": 100, "kv_usage": 1.0}
    classes = {"normal": open_to_all, "batch": open_to_all}
    world = World([spot], config(classes=classes))
    for _ in range(5):
        world.come(tokens=500, output=500)
    batch = [world.come(number=4.0, tokens=500, output=500) for _ in range(3)]
    reserved = config(classes=classes, reservations={"enabled": True})
    world.queue.adopt(reserved)
    assert used(world) == [0, 0, 5000, 0, 3000]
    # Two thousand places are left, and class normal has more than its share.
    assert [world.come(tokens=500, output=500) in world.started for _ in range(3)] == [
        *(True, True),
        False,
    ]
    waits = world.come(number=4.0, tokens=500, output=500)
    world.run(2.0)
    assert waits not in world.started and held_tokens(world.queue, 2) == 0.0
    # Reservations are off: no request is delayed, and no request is counted.
    world.queue.adopt(config(classes=classes))
    world.tick()
    assert world.queue.waiting == 0 and used(world) == [0] * CLASSES
    world.leave(batch[0])
    world.queue.adopt(reserved)
    assert used(world) == [0, 0, 8000, 0, 3000]
    spot.prefills = False
    world._serve(spot)
    world.run(300.0)
    assert used(world) == [0] * CLASSES
    world.assert_empty()


@needs("reservations")
def test_enabling_reservations_keeps_a_share_for_waiting_classes() -> None:
    spot = Spot("a", slots=None, limit=100)
    spot.kv_tokens = 10_000
    spot.prefills = True
    wide = {"waiting": 100, "kv_usage": 1.0}
    classes = {"high": {"waiting": 1, "prefill_tokens": 0}, "batch": wide}
    world = World([spot], config(classes=classes))
    world.come(number=4.0, tokens=500, output=500)
    waits = world.come(number=1.0, tokens=500, output=500)
    assert waits not in world.started
    world.queue.adopt(config(classes=classes, reservations={"enabled": True}))
    world.tick()
    assert held_tokens(world.queue, 1) == 1000.0
    for _ in range(20):
        world.come(number=4.0, tokens=500, output=500)
    assert used(world)[4] == 9000
    world.leave(waits)
    assert (world.queue.waiting, used(world)[4]) == (12, 9000)


@needs("preemption")
def test_enabling_preemption_finds_running_requests() -> None:
    world = World([Spot("a", slots=4)], config(gates=NARROW))
    low = [world.come(number=3.0, tokens=20_000, output=50) for _ in range(3)]
    high = world.come(number=1.0, tokens=100, output=10)
    world.run(1.0)
    assert high not in world.started
    on = config(gates=NARROW, preemption={"enabled": True, "budget": 1.0})
    world.queue.adopt(on)
    world.tick()
    assert high in world.started and low[2].state == WAITING
    # Preemption is off: no request is preempted any more, and none is listed.
    world.queue.adopt(config(gates=NARROW))
    assert listed(world.queue) == 0
    late = world.come(number=1.0, tokens=100, output=10)
    world.run(0.5)
    assert late not in world.started
    world.run(60.0)
    world.assert_empty()


@needs("preemption")
def test_disabling_preemption_cancels_pending_ones() -> None:
    world = World([Spot("a", slots=4)], config(gates=NARROW, preemption={"enabled": True}))
    low = [world.come(number=3.0, tokens=20_000, output=50) for _ in range(3)]
    world.come(number=1.0, tokens=100, output=10)
    queue = world.queue
    assert queue.tick(world.now + 0.3).preempt == [low[2]]
    assert asked(queue) == 1
    queue.adopt(config(gates=NARROW))
    assert asked(queue) == 0
    world._put_back(low[2])
    queue.adopt(config(gates=NARROW, preemption={"enabled": True, "gap": 1}))
    # two low ones, and the high one, which a critical one may preempt
    assert listed(queue) == 3
    world.run(60.0)
    world.assert_empty()
    assert listed(queue) == 0
