"""Inversion protection: less urgent requests without output are preempted, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from policies.queueing.ticket import SENT, WAITING, Ticket
from router.admission.queue import Queue
from router.core.replica_load import ReplicaLoad
from tests.admission.extras import asked, listed
from tests.admission.world import Spot, Stand, World, config


class Choosy(Stand):
    """A pool whose policy keeps class high away from replicas with too many requests."""

    def __init__(self, spots: Sequence[Spot], most: dict[Spot, int]) -> None:
        super().__init__(spots)
        self.most = most
        self.asked: set[int] = set()

    def closed_to(self, place: ReplicaLoad, leaving: int = -1) -> int:
        assert isinstance(place, Spot)
        self.asked.add(leaving)
        load = place.load + 1 - (leaving >= 0)
        return 1 << 1 if load > self.most[place] else 0


LOW = {"number": 3.0, "tokens": 20_000, "output": 50}
HIGH = {"number": 1.0, "tokens": 100, "output": 10}


def preempting(**fields: Any) -> World:
    rules = config(
        preemption={"enabled": True, "budget": 1.0, **fields}, gates={"prefill_tokens": 0}
    )
    return World([Spot("a", slots=4)], rules)


def test_the_newest_least_urgent_request_is_preempted_and_keeps_its_position() -> None:
    world = preempting()
    low = [world.come(**LOW) for _ in range(5)]
    world.come(**{**LOW, "number": 4.0})
    spot = world.pool.spots[0]
    assert [job.ticket for job in spot.fifo] == low[1:3]
    high = world.come(**HIGH)
    world.run(0.19)
    assert world.queue.counts.preempted == [0] * 5
    world.run(0.02)
    assert world.queue.counts.preempted == [0, 0, 0, 1, 0]
    assert high in world.started
    assert low[2].state == WAITING and low[1].state == SENT
    assert preemptions(low[2]) == 1
    world.run(60.0)
    assert len(world.done) == 7
    # The preempted request was sent again before requests that came later.
    order = [ticket for ticket in world.order if ticket in low]
    assert order == [low[0], low[1], low[2], low[2], low[3], low[4]]
    world.assert_empty()


def test_running_time_before_a_preemption_is_not_waiting_time() -> None:
    """The request was sent without a wait and ran for longer than its queue timeout."""
    rules = config(
        preemption={"enabled": True, "budget": 1.0},
        gates={"prefill_tokens": 0},
        classes={"low": {"wait_s": 0.15}},
    )
    world = World([Spot("a", slots=4)], rules)
    low = [world.come(**LOW) for _ in range(3)]
    world.run(0.01)
    assert all(ticket.state == SENT for ticket in low)
    world.come(**HIGH)
    world.run(0.25)
    assert preemptions(low[2]) == 1
    assert low[2].state in (WAITING, SENT), "it has not expired"
    world.run(60.0)  # after this time its queue timeout has passed
    assert low[2] not in world.done


def test_a_request_with_content_is_not_preempted() -> None:
    world = preempting()
    for _ in range(4):
        world.come(**{**LOW, "tokens": 10, "output": 1000})
    world.run(0.1)  # all requests decode, and no slot is free
    spot = world.pool.spots[0]
    assert spot.running == 4
    for _ in range(3):
        world.come(number=2.0, tokens=10, output=10)
    high = world.come(**HIGH)
    world.run(5.0)
    assert sum(world.queue.counts.preempted) == 0
    assert high not in world.started


def test_an_unstreamed_request_can_be_preempted_for_a_few_seconds_only() -> None:
    for wait_s, gives in ((1.0, 1), (6.0, 0)):
        world = preempting(whole_s=5.0)
        spot = world.pool.spots[0]
        for _ in range(3):
            world.come(**{**LOW, "tokens": 10, "output": 1000}, streamed=False)
        spot.kv_usage = 0.99  # the running requests fill the KV cache
        world.run(wait_s)
        world.free(spot)
        world.come(**HIGH)
        world.run(0.5)
        assert sum(world.queue.counts.preempted) == gives


def test_the_budget_bounds_preemptions() -> None:
    world = preempting(budget=0.05)
    for _ in range(60):
        world.come(**{**LOW, "tokens": 5000})
        world.come(**HIGH)
        world.run(0.5)
    world.run(60.0)
    sent = len(world.order)
    assert 1 <= sum(world.queue.counts.preempted) <= 1 + 0.05 * sent


def test_the_number_of_preemptions_of_a_request_is_limited() -> None:
    world = preempting(times=2)
    low = world.come(**LOW)
    for _ in range(100):
        world.come(**{**HIGH, "tokens": 1500})
        world.come(**{**HIGH, "tokens": 1500})
        world.run(0.2)
    assert preemptions(low) <= 2
    world.run(60.0)
    assert low in world.done
    world.assert_empty()


def test_a_request_that_ends_before_its_preemption_is_not_put_back() -> None:
    world = preempting()
    low = [world.come(**LOW) for _ in range(3)]
    world.come(**HIGH)
    queue = world.queue
    victims = queue.tick(world.now + 0.3).preempt
    assert victims == [low[2]]
    job = world.jobs[low[2]]
    world._stop(job)
    queue.runs.settle(low[2], 10, 10, world.now)
    world._ended(low[2])
    assert not queue.requeue(low[2], world.now)
    assert asked(queue) == 0
    world.free(job.spot)
    world.run(60.0)
    world.assert_empty()


def test_preemption_is_off_by_default() -> None:
    world = World([Spot("a", slots=4)], config(gates={"prefill_tokens": 0}))
    for _ in range(5):
        world.come(**LOW)
    high = world.come(**HIGH)
    world.run(1.0)
    assert high not in world.started
    assert listed(world.queue) == 0


def preemptions(ticket: Ticket) -> int:
    """Number of preemptions of the ticket."""
    assert ticket.run is not None
    return ticket.run.preemptions


def test_a_high_request_in_an_engine_full_of_batch_preempts_a_batch_request_there() -> None:
    """The batch request that was sent last before the high one gives up its place."""
    world = at_engines(whole_s=5.0)
    high = world.come(**HIGH)
    assert high.state == SENT and world.jobs[high].spot.running == 2
    assert world.queue.counts.engine_inverted == [0, 1, 0, 0, 0]
    world.run(0.19)
    assert world.queue.counts.preempted == [0] * 5
    world.run(0.05)
    assert world.queue.counts.preempted == [0, 0, 0, 0, 1]
    assert world.jobs[high].spot.fifo[0].ticket is high
    world.run(1000.0)
    assert len(world.done) == 11
    world.assert_empty()


def test_a_whole_answer_that_has_run_for_long_keeps_its_slot() -> None:
    world = at_engines(whole_s=0.5)
    world.run(1.0)
    high = world.come(**HIGH)
    world.run(1.0)
    assert world.queue.counts.engine_inverted == [0, 1, 0, 0, 0]
    assert world.queue.counts.preempted == [0] * 5 and high not in world.first


def test_a_stream_with_content_keeps_its_slot() -> None:
    world = at_engines(streamed=True)
    world.run(1.0)
    high = world.come(**HIGH)
    world.run(1.0)
    assert world.queue.counts.engine_inverted == [0, 1, 0, 0, 0]
    # The batch request that waits for a slot was sent before the high one, and has no content.
    assert sum(world.queue.counts.preempted) <= 1 and high not in world.first


def test_without_preemption_an_inversion_at_an_engine_is_only_counted() -> None:
    world = at_engines(enabled=False)
    world.come(**HIGH)
    world.run(2.0)
    assert world.queue.counts.engine_inverted == [0, 1, 0, 0, 0]
    assert world.queue.counts.preempted == [0] * 5


def at_engines(*, streamed: bool = False, **fields: Any) -> World:
    """Two replicas of two slots, full of batch; more batch requests wait in the queue."""
    rules = config(preemption={"enabled": True, "budget": 1.0, **fields})
    world = World([Spot("a", slots=2), Spot("b", slots=2)], rules)
    for _ in range(10):
        world.come(number=4.0, tokens=100, output=500, streamed=streamed)
    world.run(0.1)
    assert all(spot.running == 2 for spot in world.pool.spots) and world.queue.waiting
    return world


@pytest.mark.parametrize(("most", "is_useful"), [(1, False), (2, False), (3, True)])
def test_no_request_is_preempted_for_a_slot_that_the_policy_keeps_closed(
    most: int, is_useful: bool
) -> None:
    """Three requests are at the replica, so a preemption leaves two and the urgent one."""
    world = preempting()
    (spot,) = world.pool.spots
    pool = Choosy([spot], {spot: most})
    pool.clock = lambda: world.now
    world.pool = pool
    rules = world.queue.config
    world.queue = Queue(rules, pool)
    world.queue.freed(spot, world.now)
    for _ in range(3):
        world.come(**LOW)
    assert spot.load == 3
    high = world.come(**HIGH)
    assert high.state == WAITING
    world.run(0.5)
    assert (sum(world.queue.counts.preempted) > 0) is is_useful
    assert (high in world.started) is is_useful
    assert 3 in pool.asked


def test_a_victim_is_searched_at_another_replica_if_the_policy_keeps_one_closed() -> None:
    first, second = Spot("a", slots=4), Spot("b", slots=4)
    world = World([first, second], preempting().queue.config)
    pool = Choosy([first, second], {first: 3, second: 0})
    pool.clock = lambda: world.now
    world.pool = pool
    world.queue = Queue(world.queue.config, pool)
    for spot in pool.spots:
        world.queue.freed(spot, world.now)
    low = [world.come(**LOW) for _ in range(6)]
    assert low[5].place is second
    high = world.come(**HIGH)
    world.run(0.5)
    assert preemptions(low[5]) == 0
    assert high.place is first


def test_a_request_between_two_attempts_is_not_preempted_and_a_retried_one_is() -> None:
    """Between two attempts a request holds no capacity. A reload finds retried requests, too."""
    world = preempting()
    low = [world.come(**LOW) for _ in range(3)]
    spot = world.pool.spots[0]
    queue = world.queue
    queue.runs.failed(low[1])
    queue.runs.failed(low[2])
    assert listed(queue) == 1
    queue.adopt(preempting(gap=1).queue.config)
    assert listed(queue) == 1
    queue.runs.moved(low[2], spot, world.now)
    assert listed(queue) == 2
    queue.adopt(preempting().queue.config)
    assert listed(queue) == 2
    world.come(**HIGH)
    assert queue.tick(world.now + 0.3).preempt == [low[2]]


def test_another_queue_preempts_a_retried_request_that_it_takes_over() -> None:
    world, other = preempting(), preempting()
    low = world.come(**LOW)
    world.queue.runs.failed(low)
    world.queue.runs.moved(low, world.pool.spots[0], world.now)
    world.queue.runs.hand_over(low, other.queue.runs, world.now)
    assert (listed(world.queue), listed(other.queue)) == (0, 1)
