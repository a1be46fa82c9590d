"""Requests that leave a reclaimed replica keep their place in the queue, and lose no attempt."""

from __future__ import annotations

import pytest

from router.config.model import Preemption, Queue, QueueLimits
from router.core.errors import Reason
from router.fleet.membership import Duty
from tests.dispatch.driven import Driven, World

TICKETS = Queue(preemption=Preemption(enabled=True))  # every request has a ticket


def reclaimed(world: World, name: str, request: Driven) -> bool:
    """Reclaim a replica, and try to move the request."""
    replica = next(replica for replica in world.replicas if replica.id == name)
    world.fleet.set_duty(replica, Duty.DRAINING)
    return request.driver.leave(request.driver.state.live[0], world.time.at)


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
    other.whole(other.driver.state.live[0])
    world.time.passes(0.5)
    assert sent(world) == ["moved", "other", "moved"]
    moved.whole(moved.driver.state.live[0])
    world.time.passes(0.5)
    assert sent(world)[3:] == ["third"]


@pytest.mark.parametrize("others", ["full", "shut"])
def test_a_request_without_a_ticket_waits_if_no_other_replica_accepts_it(others: str) -> None:
    """It waits in the queue, in its old position. It does not stay until the machine goes away."""
    world = World(2, queue=Queue(), most=1 if others == "full" else None)
    moved = world.arrives("moved")
    assert moved.ticket is None
    blocked = world.replicas[1]
    if others == "full":
        ahead = world.arrives("ahead")
    else:
        assert world.queue is not None
        world.queue.pools.unreached(blocked, world.time.at)  # its gate is shut for a time
    assert reclaimed(world, "r0", moved)
    assert moved.ticket is not None
    assert not moved.driver.state.live
    world.arrives("late")
    world.time.turn()
    assert "moved" not in sent(world)[1:]
    world.said.clear()
    if others == "full":
        ahead.whole(ahead.driver.state.live[0])
    world.time.passes(3.0)
    begun = [said for said in world.said if said.split()[0] in ("send", "retry")]
    assert begun[0] == "retry moved to r1"


def test_a_request_that_gets_a_ticket_does_not_return_to_where_it_failed() -> None:
    world = World(3, queue=Queue(), most=1)
    moved = world.arrives("moved")
    moved.fails(moved.driver.state.live[0], Reason.REPLICA_RESET)
    world.time.passes(0.5)
    assert world.said[-1] == "retry moved to r1"
    at_r0, at_r2 = world.arrives("x"), world.arrives("y")
    assert reclaimed(world, "r1", moved)
    assert moved.ticket is not None
    world.said.clear()
    at_r0.whole(at_r0.driver.state.live[0])
    world.time.passes(0.5)
    assert sent(world) == []
    at_r2.whole(at_r2.driver.state.live[0])
    world.time.passes(0.5)
    assert world.said[-1] == "retry moved to r2"


def test_a_request_that_the_queue_refuses_stays() -> None:
    """An attempt must not end before another replica, or the queue, takes the request over."""
    world = World(2, queue=Queue(limits=QueueLimits(bytes=1)), most=1)
    request = world.arrives("q", key="limited", concurrency=world.concurrency)
    other = world.arrives("other")
    assert not reclaimed(world, "r0", request)
    assert request.ticket is None
    assert request.is_counted
    assert [attempt.replica_id for attempt in request.driver.state.live] == ["r0"]
    for each in (request, other):
        each.whole(each.driver.state.live[0])
    world.time.passes(0.5)
    world.check_empty()


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
    request.fails(request.driver.state.live[0], Reason.CONNECT_FAILED, received=False)
    world.time.passes(0.5)
    assert world.said[-1] == "retry q to r0"
