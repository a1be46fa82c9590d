"""Queue limits, time limits and departures: every ticket ends exactly once.

The client gets one reason and the time after which to retry.
"""

from random import Random

import pytest
from hypothesis import given, strategies as st

from policies.queueing.contract import order_names
from policies.queueing.ticket import ENDED, SENT, Ticket
from router.admission.counts import EVICTED, EXPIRIES, LEFT
from router.admission.runs import REFUSED
from router.core.errors import Reason, RouterError
from router.core.urgency import HIGH, NORMAL
from tests.addons.needed import needs
from tests.admission.extras import asked, listed, used_tokens
from tests.admission.world import Spot, World, config
from tests.examples import examples
from tests.tickets import make_ticket


def full(**limits: object) -> World:
    """A world whose replica accepts no further request for a second."""
    world = World([Spot("a")], config(**limits, gates={"prefill_tokens": 0}))
    for _ in range(3):
        world.come(key="first", tokens=10_000, output=10)
    return world


def refusal(world: World) -> RouterError:
    (_, error) = world.refused[-1]
    return error


def test_no_request_is_evicted_for_one_that_is_refused_anyway() -> None:
    """The class is full of another key's requests, but the bytes limit is used by its own key."""
    world = full(limits={"bytes": 1000}, classes={"normal": {"depth": 3}})
    others = [world.come(key="other", tokens=10, output=10) for _ in range(3)]
    world.come(key="own", number=4.0, body_bytes=950, tokens=10, output=10)
    world.come(key="own", body_bytes=100, tokens=10, output=10)
    assert refusal(world).reason is Reason.QUEUE_BYTES_FULL
    assert not world.evicted
    world.come(key="own", body_bytes=50, tokens=10, output=10)
    assert [gone for gone, _ in world.evicted] == others[-1:]
    world.run(60.0)
    world.assert_empty()


def test_small_bodies_are_not_evicted_if_the_large_one_stays() -> None:
    world = full(limits={"bytes": 1000})
    for size in (640, 60, 60):
        world.come(key="large", body_bytes=size, tokens=10, output=10)
    world.come(key="own", body_bytes=150, tokens=10, output=10)
    world.come(key="own", body_bytes=500, tokens=10, output=10)
    # without the 640 bytes of a ticket, the other key holds less than this key
    assert refusal(world).reason is Reason.QUEUE_BYTES_FULL
    assert not world.evicted
    world.run(60.0)
    world.assert_empty()


def test_retry_after_is_computed_from_the_measured_service_rate() -> None:
    rules = config(classes={"normal": {"depth": 100, "wait_s": 1000.0}})
    world = World([Spot("a", slots=8)], rules)
    world.come_often(0.01, 6000, tokens=9000, output=10)  # one request per second is served
    world.run(50.0)
    retry_after_s = refusal(world).retry_after_s
    assert retry_after_s is not None
    assert 90 <= retry_after_s <= 125
    slow = World([Spot("a")], config(classes={"normal": {"depth": 1}}))
    slow.pool.spots[0].prefills = True
    for _ in range(30):
        slow.come(tokens=9000, output=10)
    assert refusal(slow).retry_after_s is not None


def test_a_client_may_disconnect_before_and_after_the_dispatch() -> None:
    world = World([Spot("a")])
    ticket = make_ticket(arrival=world.now, tokens=10)
    assert world.queue.offer(ticket, world.now)
    assert not world.queue.leave(ticket)  # the ticket did not wait
    assert ticket.state == ENDED
    world.queue.sent(ticket, world.pool.spots[0], world.now)
    assert ticket.state == ENDED
    other = world.come(tokens=10, output=10)
    assert not world.queue.leave(other)
    assert other.state == SENT
    world.leave(other)
    assert other.state == ENDED
    world.assert_empty()


def test_ends_race_to_exactly_one() -> None:
    world = full(classes={"normal": {"wait_s": 5.0}})
    queue, spot = world.queue, world.pool.spots[0]
    ticket = world.come(tokens=10, output=10)
    queue.runs.settle(ticket, 10, 10, world.now)  # the request was not sent
    assert not queue.requeue(ticket, world.now)
    assert queue.waiting == 1
    assert queue.leave(ticket)
    queue.runs.settle(ticket, 10, 10, world.now)
    assert not queue.leave(ticket)
    assert not queue.requeue(ticket, world.now)
    assert [over.ticket for over in queue.tick(world.now + 60.0).expired] == []
    assert ticket not in queue.freed(spot, world.now + 60.0)
    assert queue.waiting == 0


def test_a_new_replica_is_found_by_the_timer_without_a_notification() -> None:
    world = full()
    tickets = [world.come(tokens=10, output=10) for _ in range(5)]
    world.pool.spots.append(Spot("new"))
    world.run(0.2)
    assert any(ticket in world.started for ticket in tickets)


def test_a_ticket_that_excludes_a_replica_does_not_block_it() -> None:
    one, two = Spot("one"), Spot("two")
    world = World([one, two], config(gates={"prefill_tokens": 0}))
    two.prefills = True
    for _ in range(6):
        world.come(tokens=10, output=1000)
    picky = [world.come(tokens=10, output=10, excluded=(one,)) for _ in range(200)]
    free = [world.come(tokens=10, output=10) for _ in range(10)]
    # The search examines fewer requests than these; they delay the others only for a while.
    for ticket in picky[50:]:
        world.leave(ticket)
    world.run(10.0)
    assert all(world.started[ticket] for ticket in free)
    assert not any(ticket in world.started for ticket in picky[3:50])
    two.prefills = False
    world._serve(two)
    world.run(20.0)
    assert all(ticket in world.done for ticket in picky[:50])


def test_a_tried_replica_is_used_if_there_is_no_other() -> None:
    one, two = Spot("one"), Spot("two")
    world = World([one, two], config(gates={"prefill_tokens": 0}))
    two.prefills = True
    for _ in range(6):
        world.come(tokens=10, output=1000)
    world.run(5.0)  # room at `one` only
    picky = [world.come(tokens=10, output=10, excluded=(one,)) for _ in range(3)]
    world.run(1.0)
    assert not any(ticket in world.started for ticket in picky)
    world.pool.spots.remove(two)  # the replica is not fit any more
    world.queue.rebuilt(world.now)
    world.free(one)
    world.run(2.0)
    assert all(ticket in world.done for ticket in picky)


def test_a_second_try_goes_where_a_first_one_may() -> None:
    one, two = Spot("one"), Spot("two")
    world = World([one, two], config(gates={"waiting": 1, "prefill_tokens": 0}))
    queue = world.queue
    two.prefills = True
    stuck = [world.come(tokens=10, output=1000) for _ in range(2)]
    world.run(0.5)
    held = [place for place in (one, two) if not queue.open_to("", NORMAL, (place,))]
    assert held == [two]  # a request waits in that lane
    assert list(queue.open_to("", NORMAL, (one, two))) == [one]
    picky = world.come(tokens=10, output=10, excluded=(one,))
    assert picky not in world.started
    assert not queue.open_to("", NORMAL, (one,))  # an earlier request of its class is waiting
    assert list(queue.open_to("", HIGH, (one,))) == [one]
    assert len(stuck) == 2


def test_a_replicas_refusal_lowers_its_learned_limit() -> None:
    spot = Spot("a", slots=None)
    world = World([spot])
    world.blinded(spot)
    tickets = [world.come(tokens=10, output=10, streamed=False) for _ in range(100)]
    assert spot.inflight == 64
    for ticket in tickets[:10]:
        world.run(0.001)
        world._stop(world.jobs[ticket])
        world.queue.runs.settle(ticket, -1, -1, world.now, REFUSED)
        world._ended(ticket)
    learned = world.queue.gates.of(spot).learned
    assert learned is not None
    assert 4 <= learned.allowed() < 64
    world.free(spot)
    world.run(30.0)
    assert world.queue.waiting == 0


@needs("preemption", "reservations")
@pytest.mark.parametrize("name", order_names())
@examples(15)
@given(st.integers(0, 10**6))
def test_under_random_operations_every_ticket_ends_once(name: str, seed: int) -> None:
    rng = Random(seed)
    classes = {
        "normal": {"wait_s": 5.0, "starvation_s": 2.0, "depth": 30, "absent_s": 1.0},
        "batch": {"wait_s": 20.0, "starvation_s": 4.0},
    }
    rules = config(
        policy=name,
        classes=classes,
        limits={"flow": 10, "bytes": 10_000},
        reservations={"enabled": rng.random() < 0.5},
        preemption={"enabled": rng.random() < 0.5, "budget": 1.0, "gap": 1},
    )
    spots = [Spot("a", slots=3), Spot("b", slots=5, limit=4)]
    for spot in spots:
        spot.kv_tokens = rng.choice((None, 5000, 50_000))
    world = World(spots, rules)
    world.pool.lanes = {"m1": spots[:1], "m2": spots[1:]}
    came: list[Ticket] = []
    for _ in range(150):
        act = rng.random()
        if act < 0.75:
            came.append(
                world.come(
                    lane=rng.choice(("m1", "m2", "both")),
                    number=rng.uniform(0.0, 4.4),
                    key=f"k{rng.randrange(3)}",
                    user=f"u{rng.randrange(2)}",
                    tokens=rng.randrange(3000),
                    output=rng.choice((-1, 0, 50)),
                    deadline=world.now + rng.choice((0.01, 1.0, 1e9)),
                    body_bytes=rng.randrange(1000),
                    streamed=rng.random() < 0.7,
                )
            )
        elif act < 0.9:
            world.leave(rng.choice(came)) if came else None
        else:
            world.tick()
        world.run(rng.choice((0.0, 0.01, 0.3)))
    world.run(200.0)
    world.assert_empty()
    assert world.ends.keys() == set(came)
    queue = world.queue
    assert [used_tokens(queue, urgency) for urgency in range(5)] == [0] * 5
    assert listed(queue) == 0 and asked(queue) == 0
    assert sum(queue.counts.queued) == (
        sum(queue.counts.granted)
        + sum(sum(queue.counts.dropped[why]) for why in (EVICTED, *EXPIRIES, LEFT))
        - sum(queue.counts.preempted)
    )


def test_a_second_try_waits_for_a_tried_replica_where_the_lane_has_no_other() -> None:
    """Other replicas are in reserve: fit only as a last resort, and in no lane."""
    one = Spot("one")
    world = World([one], config(gates={"prefill_tokens": 0}))
    for _ in range(6):
        world.come(tokens=10, output=100)
    world.run(0.5)
    picky = world.come(tokens=10, output=10, excluded=(one,))
    world.run(10.0)  # nothing rebuilds the fleet
    assert picky in world.done


def test_a_sent_ticket_is_counted_once() -> None:
    """A ticket that begins or ends twice would leave a gate closed, or open it too far."""
    world = World([Spot("a", slots=2)])
    runs, ticket = world.queue.runs, world.come()
    gate = world.queue.gates.of(ticket.place)
    with pytest.raises(AssertionError, match="counted already"):
        runs.begin(ticket, gate, world.now, False, world.now)
    runs.settle(ticket, -1, -1, world.now)
    with pytest.raises(AssertionError, match="not counted"):
        runs.end(ticket, ticket.run)
    assert not runs.tickets
