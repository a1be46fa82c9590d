"""A reload changes the rules under those that wait, and loses none of them."""

from __future__ import annotations

import pytest

from policies.queueing.contract import order_names
from policies.registry import PolicyConfigError
from tests.admission.world import Spot, World, config

NARROW = {"prefill_tokens": 0}


@pytest.mark.parametrize("name", order_names())
def test_who_waits_keeps_waiting_under_another_order(name: str) -> None:
    world = World([Spot("a")], config(gates=NARROW))
    tickets = [world.come(key=f"k{n % 3}", tokens=1000, output=10) for n in range(20)]
    world.run(0.25)
    world.leave(tickets[10])
    world.queue.adopt(config(gates=NARROW, policy=name))
    more = [world.come(key=f"k{n % 3}", tokens=1000, output=10) for n in range(20)]
    world.run(60.0)
    assert len(world.done) == len(tickets) + len(more) - 1
    world.assert_empty()


def test_other_gates_hold_at_once() -> None:
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


def test_what_is_counted_is_counted_from_the_start() -> None:
    """Reservations and preemption switched on by a reload wait for the next start."""
    world = World([Spot("a")], config())
    world.come(tokens=100, output=100)
    world.queue.adopt(config(reservations={"enabled": True}, preemption={"enabled": True}))
    world.run(10.0)
    assert [world.queue.used_tokens(urgency) for urgency in range(5)] == [0] * 5
    world.assert_empty()
