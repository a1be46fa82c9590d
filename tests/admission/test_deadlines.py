"""Deadlines of tickets that no longer wait must not keep memory, even with constant new
arrivals.
"""

from __future__ import annotations

import pytest

from tests.admission.world import Spot, World, config


@pytest.mark.parametrize("way", ["leave", "served"])
def test_deadlines_of_removed_tickets_are_dropped(way: str) -> None:
    world = World([Spot("a", prefill_rate=1e9)], config(gates={"prefill_tokens": 0}))
    world.pool.spots[0].prefills = True
    for _ in range(3):
        world.come(tokens=10, output=1)
    tickets = [world.come(tokens=10, output=1, deadline=world.now + 50.0) for _ in range(1000)]
    wait_lists = world.queue._wait_lists
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
