"""What the queue driver reports about the requests that it queues."""

import pytest

from policies.queueing.ticket import Ticket
from router.admission.pools import Pools
from router.config.model import Preemption, Queue
from router.core.build import is_compiled
from router.fleet.context import ContextLengths
from router.share.messages import VERSION, Message, Row
from router.share.others import Others
from tests.addons.needed import needs
from tests.dispatch.driven import Driven, World
from tests.share.limits_helpers import unlimited


@needs("preemption")
def test_each_wait_is_measured_without_the_time_at_replicas() -> None:
    """Before the fix, the wait after a preemption also contained the time since the arrival."""
    queue = Queue(
        order="strict", policy="fifo", preemption=Preemption(enabled=True, after_s=0.5, budget=1.0)
    )
    world = World(1, most=1, queue=queue)
    preempted = world.arrives("preempted", "batch")
    world.time.passes(8.0)
    urgent = world.arrives("urgent", "high")
    world.time.passes(0.75)
    assert preempted.deadlines.waits_since > 0.0
    urgent_wait = world.metrics.classes["high"].wait
    assert sum(urgent_wait.counts) == 1
    assert 0.5 <= urgent_wait.sum < 0.75
    began = preempted.deadlines.waits_since
    urgent.whole(urgent.driver.state.live[0])
    world.time.turn()
    assert preempted.deadlines.waits_since < 0.0
    wait = world.metrics.classes["batch"].wait
    assert sum(wait.counts) == 1
    assert wait.sum == pytest.approx(world.time.at - began)
    assert wait.sum < 0.75


@pytest.mark.skipif(is_compiled(), reason="compiled methods cannot be replaced")
def test_a_request_keeps_its_ticket_if_the_queue_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ticket may be in the queue, and the end of the request must remove it."""
    world = World(1, most=1, queue=Queue(order="strict", policy="fifo"))
    world.arrives("a")
    queue = world.queue
    assert queue is not None
    offer = Pools.offer

    def offer_and_raise(pools: Pools, ticket: Ticket, now: float) -> None:
        offer(pools, ticket, now)
        raise ZeroDivisionError

    monkeypatch.setattr(Pools, "offer", offer_and_raise)
    with pytest.raises(ZeroDivisionError):
        world.arrives("b")
    request = world.of("b")
    assert request.ticket is not None
    assert queue.pools.waiting == 1
    request.leaves()
    assert queue.pools.waiting == 0


def test_changed_context_lengths_are_applied_once_to_waiting_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1, most=1, queue=Queue(order="strict", policy="fifo"), lengths=(4000,))
    world.arrives("a")
    world.arrives("b")
    limited: list[str] = []

    def limit_context(request: Driven) -> bool:
        limited.append(request.name)
        return False

    monkeypatch.setattr(Driven, "limit_context", limit_context)
    for length, expected in ((3000, ["b"]), (3000, ["b"]), (2000, ["b", "b"])):
        world.replicas[0].listed.lengths = ContextLengths({}, length)
        world.fleet.rebuild()
        world.time.turn()
        assert limited == expected


def test_a_request_waits_if_other_routers_have_filled_its_replica_since_the_last_grant() -> None:
    """The gate must not stay open as it was after the last grant."""
    world = World(1, queue=Queue())
    others = Others("own", world.fleet, unlimited())

    def told(number: int, load: int) -> None:
        row = Row("r0", load, load, 1_000_000 * load)
        others.hear(Message(VERSION, "other", number, (row,), True, ()), world.time.at)

    told(1, 9)
    world.arrives("a")
    told(2, 0)
    world.time.turn()
    assert world.said == ["queue a", "grant a", "send a to r0"]
    told(3, 9)
    world.said.clear()
    world.arrives("b")
    assert world.said == ["queue b"]
