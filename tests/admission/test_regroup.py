"""A replica that changes its pool keeps what is known about it, and its running requests."""

from collections.abc import Callable

import pytest

from policies.queueing.ticket import CLASSES, SENT, WAITING, Ticket
from router.admission.queue import Queue
from router.admission.runs import REFUSED
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH, NORMAL
from tests.addons.needed import needs
from tests.admission.extras import used_tokens
from tests.admission.test_pools import Desk, Fleet
from tests.admission.world import Spot

pytestmark = needs("reservations")

HALF = {"batch": {"slots": 0.5, "waiting": 100, "prefill_tokens": 0}}


def desk_of(**classes: object) -> Desk:
    """Two pools: `one` serves model a, `two` serves model b. Each replica has four slots."""
    fleet = Fleet(one="a", two="b")
    fleet.known_slots = 4.0
    return Desk(fleet, classes=classes, reservations={"enabled": True}, policy="fair")


def gate_batch(queue: Queue, place: ReplicaLoad) -> int:
    return queue.gates.of(place).facts.batch


def join(desk: Desk) -> None:
    """Join both pools. The joined pool keeps the queue of model b, in which more requests wait."""
    kept = desk.pools.of("b")
    assert kept.waiting > desk.pools.of("a").waiting
    both = Spot("both")
    both.limit = 0
    desk.fleet.served[both] = {"a", "b"}
    desk.regroup()
    assert desk.pools.queues == [kept]


def join_and_split(desk: Desk) -> None:
    """Join both pools and split them again. Then model a has a new queue."""
    join(desk)
    both = next(place for place in desk.fleet.served if place.id == "both")
    del desk.fleet.served[both]
    desk.regroup()
    assert len(desk.pools.queues) == 2


@pytest.mark.parametrize("change", [join, join_and_split])
def test_running_batch_requests_still_count_against_the_share(
    change: Callable[[Desk], None],
) -> None:
    desk = desk_of(**HALF)
    one = desk.fleet.spots["one"]
    batch = [desk.come("a", number=4.0) for _ in range(3)]
    for _ in range(5):
        desk.come("b", number=4.0)
    assert [ticket.state for ticket in batch] == [SENT, SENT, WAITING]
    change(desk)
    queue = desk.pools.of("a")
    assert gate_batch(queue, one) == 2
    assert [ticket.queue for ticket in batch] == [queue] * 3
    assert batch[2].state == WAITING
    desk.end(batch[0])
    assert batch[2].state == SENT and gate_batch(queue, one) == 2
    desk.end(batch[1])
    desk.end(batch[2])
    assert gate_batch(queue, one) == 0
    assert used_tokens(queue, BATCH) == 110 * (2 if queue is desk.pools.of("b") else 0)


def test_a_retry_at_a_replica_of_another_pool_is_counted_there() -> None:
    desk = desk_of(**HALF)
    one, two = desk.fleet.spots["one"], desk.fleet.spots["two"]
    left, right = desk.pools.of("a"), desk.pools.of("b")
    ticket = desk.come("a", number=4.0)
    left.runs.failed(ticket)
    desk.leases.pop(ticket).release()
    desk._lease(ticket, two)
    desk.pools.moved(ticket, two, desk.now)
    assert list(left.gates.by_place) == [one] and list(right.gates.by_place) == [two]
    assert (gate_batch(left, one), gate_batch(right, two)) == (0, 1)
    assert [used_tokens(left, n) for n in range(CLASSES)] == [0] * CLASSES
    assert used_tokens(right, BATCH) == 110
    desk.end(ticket)
    assert gate_batch(right, two) == 0 and used_tokens(right, BATCH) == 0


def test_the_limit_and_the_pause_of_a_replica_are_kept() -> None:
    desk = desk_of()
    one = desk.fleet.spots["one"]
    desk.fleet.blind.add(one)
    one.polls_heard += 1
    desk.free(one)
    sent: list[Ticket] = [desk.come("a")]
    learned = desk.pools.of("a").gates.of(one).learned
    assert learned is not None
    before = learned.limit
    sent[0].queue.runs.settle(sent[0], 0, 0, 1.0, REFUSED)
    assert learned.limit < before
    desk.leases.pop(sent[0]).release()
    desk.pools.unreached(one, desk.now)
    for _ in range(3):
        desk.come("b")
    join(desk)
    queue = desk.pools.of("a")
    gate = queue.gates.of(one)
    assert gate.learned is learned
    assert (
        queue.gates.why_closed(one, NORMAL) == "connect" and desk.pools.next_at <= gate.shut_until
    )
    late = desk.come("a")
    assert late.state == WAITING
    desk.pools.tick(gate.shut_until)
    assert late.place is one


def test_a_charge_is_kept_in_the_queue_that_made_it() -> None:
    desk = desk_of()
    first, second = desk.come("a", key="k"), desk.come("a", key="k")
    for _ in range(3):
        desk.come("b", key="k")
    desk.end(first)
    assert second.state == SENT and second.charged > 0.0
    desk.now = 1.0
    join(desk)
    assert second.charged < 0.0
    third = desk.come("a", key="k")
    assert third.state == WAITING
    desk.leases.pop(second).release()
    assert desk.pools.requeue(second, desk.now)
    assert second.state == WAITING and second.queue is desk.pools.queues[0]
    assert not desk.pools.failures.count
