"""Requests that leave a reclaimed replica keep their place in the queue, and lose no attempt."""

from __future__ import annotations

import pytest

from router.config.model import Preemption, Queue
from router.core.errors import Reason
from router.fleet.membership import Duty
from tests.dispatch.driven import Driven, World

TICKETS = Queue(preemption=Preemption(enabled=True))  # every request has a ticket


def reclaimed(world: World, name: str, request: Driven) -> bool:
    """Reclaim a replica, and try to move the request."""
    replica = next(replica for replica in world.replicas if replica.id == name)
    world.fleet.set_duty(replica, Duty.DRAINING)
    return request.driver.leave(request.driver.live[0], world.time.at)


def sent(world: World) -> list[str]:
    """The requests in the order in which they were sent."""
    return [said.split()[1] for said in world.said if said.split()[0] in ("send", "retry")]


def test_a_moved_ticket_goes_before_those_that_arrived_later() -> None:
    world = World(2, queue=TICKETS, most=1)
    moved, other = world.arrives("moved"), world.arrives("other")
    for name in ("third", "fourth"):
        world.arrives(name)
    assert sent(world) == ["moved", "other"]
    assert reclaimed(world, "r0", moved)
    world.time.passes(0.5)
    assert sent(world) == ["moved", "other"], "r1 has no slot"
    other.whole(other.driver.live[0])
    world.time.passes(0.5)
    assert sent(world) == ["moved", "other", "moved"]
    moved.whole(moved.driver.live[0])
    world.time.passes(0.5)
    assert sent(world)[3:] == ["third"]


def test_without_another_replica_a_ticket_stays() -> None:
    world = World(1, queue=TICKETS, most=1)
    request = world.arrives("q")
    assert not reclaimed(world, "r0", request)
    world.time.passes(0.5)
    assert world.said == ["send q to r0"]


@pytest.mark.parametrize("queue", [Queue(enabled=False), Queue(), TICKETS])
def test_moves_take_no_attempt_from_a_request(queue: Queue) -> None:
    """Four machines are reclaimed one after the other. `retry.attempts` is 3."""
    world = World(5, queue=queue)
    request = world.arrives("q")
    for number in range(4):
        assert reclaimed(world, f"r{number}", request), number
        world.time.passes(0.1)
    assert world.said[-1] == "retry q to r4"
    # It may still fail once: no failure was counted so far.
    for replica in world.replicas[:2]:
        world.fleet.set_duty(replica, Duty.IN_SERVICE)
    request.fails(request.driver.live[0], Reason.CONNECT_FAILED, received=False)
    world.time.passes(0.5)
    assert world.said[-1] == "retry q to r0"
