"""Requests that leave a reclaimed replica keep their place in the queue, and lose no attempt."""

from typing import Any

import pytest

from router.config.model import Preemption, Queue, QueueLimits
from router.core.errors import Reason
from router.dispatch.driver.retries import leave
from router.fleet.membership import Duty
from tests.addons.needed import needs
from tests.dispatch.driven import Driven, World
from tests.dispatch.driver.driver_tables import run, stories

pytestmark = needs("preemption")

TICKETS = Queue(preemption=Preemption(enabled=True))  # every request has a ticket

MOVES = stories(
    """
    a moved ticket goes before those that arrived later [2 replicas, tickets, 1 each]
        m arrives     -> send m to r0
        a arrives     -> send a to r1
        b arrives     -> queue b
        c arrives     -> queue c
        r0 drains     -> nothing
        m must-leave  -> drop m at r0; queue m
        0.5s passes   -> nothing
        r1 ends a     -> show a from r1; release a at r1; end a: ok; grant m; retry m to r1
        r1 ends m     -> show m from r1; release m at r1; end m: ok; grant b; send b to r1
        r1 ends b     -> show b from r1; release b at r1; end b: ok; grant c; send c to r1
        r1 ends c     -> show c from r1; release c at r1; end c: ok
    a request without a ticket waits, in its position [2 replicas, queue, 1 each]
        m arrives     -> send m to r0
        a arrives     -> send a to r1
        r0 drains     -> nothing
        m must-leave  -> queue m; drop m at r0
        late arrives  -> queue late
        r1 ends a     -> show a from r1; release a at r1; end a: ok; grant m; retry m to r1
        r1 ends m     -> show m from r1; release m at r1; end m: ok; grant late; send late to r1
        r1 ends late  -> show late from r1; release late at r1; end late: ok
    ... or is shut [2 replicas, queue]
        m arrives     -> send m to r0
        r1 shuts      -> nothing
        r0 drains     -> nothing
        m must-leave  -> queue m; drop m at r0
        late arrives  -> queue late
        3s passes     -> grant m; grant late; retry m to r1; send late to r1
        m leaves      -> drop m at r1; end m: client_gone
        late leaves   -> drop late at r1; end late: client_gone
    a request that gets a ticket does not return to where it failed [queue, 1 each]
        m arrives     -> send m to r0
        r0 resets m   -> retry m to r1
        x arrives     -> send x to r0
        y arrives     -> send y to r2
        r1 drains     -> nothing
        m must-leave  -> queue m; drop m at r1
        r0 ends x     -> show x from r0; release x at r0; end x: ok
        0.5s passes   -> nothing
        r2 ends y     -> show y from r2; release y at r2; end y: ok; grant m; retry m to r2
        r2 ends m     -> show m from r2; release m at r2; end m: ok
    without another replica a ticket stays [1 replica, tickets, 1 each]
        q arrives     -> send q to r0
        r0 drains     -> nothing
        q must-leave  -> q stays
        0.5s passes   -> nothing
        q leaves      -> drop q at r0; end q: client_gone
    """,
    {"queue": {"queue": Queue()}, "tickets": {"queue": TICKETS}},
)


@pytest.mark.parametrize(("table", "settings"), MOVES)
def test_moves(table: str, settings: dict[str, Any]) -> None:
    """`must-leave`: an attempt must not end before another replica, or the queue, takes over."""
    run(table, settings)


def reclaimed(world: World, name: str, request: Driven) -> bool:
    """Reclaim a replica, and try to move the request."""
    replica = next(replica for replica in world.replicas if replica.id == name)
    world.fleet.set_duty(replica, Duty.DRAINING)
    return leave(request.driver, request.driver.state.live[0], world.time.at)


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
    request.fails(request.driver.state.live[0], Reason.CONNECT_FAILED)
    world.time.passes(0.5)
    assert world.said[-1] == "retry q to r0"
