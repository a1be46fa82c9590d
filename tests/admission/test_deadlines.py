"""The deadlines of clients: the order of equal ones, and the memory of those that have passed."""

import pytest

from policies.queueing.ticket import WAITING
from tests.admission.world import Spot, World, config, make_ticket


@pytest.mark.parametrize("way", ["leave", "served"])
def test_deadlines_of_removed_tickets_are_dropped(way: str) -> None:
    world = World([Spot("a", prefill_rate=1e9)], config(gates={"prefill_tokens": 0}))
    world.pool.spots[0].prefills = True
    for _ in range(3):
        world.come(tokens=10, output=1)
    tickets = [world.come(tokens=10, output=1, deadline=world.now + 50.0) for _ in range(1000)]
    wait_lists = world.queue.wait_lists
    assert len(wait_lists._deadlines) == 1000
    if way == "leave":
        for ticket in tickets:
            world.leave(ticket)
    else:
        world.pool.spots[0].prefills = False
        world._serve(world.pool.spots[0])
        world.run(40.0)
        assert all(ticket in world.started for ticket in tickets)
    assert world.queue.waiting == 0
    assert len(wait_lists._deadlines) <= 64


@pytest.mark.parametrize("policy", ["fifo", "fair", "slide", "edf"])
def test_two_tickets_of_one_request_may_be_in_one_queue(policy: str) -> None:
    """A fallback ends the request's ticket. Its next one has the same deadline and `order`, and may
    be in the same queue, in which the first one still has an entry in a heap."""
    world = World([Spot("a", prefill_rate=1e9)], config(policy=policy, gates={"prefill_tokens": 0}))
    world.pool.spots[0].prefills = True
    for _ in range(3):
        world.come(tokens=10, output=1)
    start, due = world.now, world.now + 50.0
    world.come(tokens=10, output=1)  # Later tickets with an earlier `order` go before this one.
    for number in range(3):
        ticket = make_ticket(arrival=start, tokens=10, output=1, deadline=due)
        ticket.order = 1
        world.offer(ticket)
        assert ticket.state == WAITING
        if number < 2:
            world.leave(ticket)
    world.now = due
    assert [over.ticket for over in world.tick()] == [ticket]
