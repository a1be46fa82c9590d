"""The headroom: its level follows the TTFT of urgent requests, within its bounds."""

from random import Random

import pytest

from policies.queueing.ticket import SENT, WAITING
from router.admission.concurrency import Concurrency
from router.admission.headroom import (
    FORGET_S,
    KEPT,
    LATE,
    QUIET_S,
    STEP,
    Headroom,
)
from router.config.model import HighClass
from router.core.urgency import NORMAL
from tests.admission.world import Spot, World, config

TARGET_S = 0.5

IN_BULK = config(classes={"batch": {"prefill_tokens": 2048}})


def late(
    headroom: Headroom, count: int, now: float = 0.0, *, is_behind_batch: bool = True
) -> float:
    """Late answers, each of a request that arrived after the one before. Returns the time."""
    for _ in range(count):
        now += 1.0
        headroom.answered(TARGET_S, 0.0, TARGET_S, now, is_behind_batch=is_behind_batch)
    return now


def test_late_answers_keep_slots_free_up_to_a_quarter() -> None:
    headroom = Headroom()
    limits = []
    for _ in range(25):
        late(headroom, 1, 10.0 * len(limits))
        limits.append(headroom.most_batch(20))
        assert headroom.most_urgent(20) == 20
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == 20 - KEPT * 20 and headroom.level == 1.0


def test_late_answers_of_one_time_raise_the_level_once() -> None:
    headroom = Headroom()
    for _ in range(10):
        headroom.answered(2.0, 0.0, TARGET_S, 10.0, is_behind_batch=True)
    assert headroom.level == STEP
    headroom.answered(2.0, 0.0, TARGET_S, 11.9, is_behind_batch=True)  # it arrived before the rise
    assert headroom.level == STEP
    headroom.answered(2.0, 0.0, TARGET_S, 12.0, is_behind_batch=True)
    assert headroom.level == 2 * STEP


def test_the_level_is_steady_at_the_share_of_late_answers() -> None:
    """An answer is late with a probability that falls with the level; the level finds `LATE`."""
    rng = Random(1)
    headroom = Headroom()
    count = 0
    for number in range(100_000):
        is_late = rng.random() < 0.1 ** (1.0 + 3.0 * headroom.level)
        ttft_s = 0.9 if is_late else 0.1
        headroom.answered(ttft_s, 0.0, TARGET_S, float(number), is_behind_batch=True)
        if number >= 20_000:
            count += is_late
    assert count / 80_000 == pytest.approx(LATE, rel=0.2)
    assert 0.0 < headroom.level < 1.0


def test_without_urgent_answers_the_level_returns() -> None:
    headroom = Headroom()
    now = late(headroom, 25)
    headroom.look(now + QUIET_S)
    assert headroom.level == 1.0
    for second in range(1, int(FORGET_S) + 1):  # the same in many looks as in one
        headroom.look(now + QUIET_S + second)
    assert headroom.level == pytest.approx(1.0 / 2.71828, rel=0.01)
    headroom.look(1e5)
    assert headroom.most_urgent(20) > 1000


# -- in the queue ---------------------------------------------------------------------------------

BATCH_REQUEST = {"number": 4.0, "tokens": 100, "output": 100}
URGENT = {"number": 1.0, "tokens": 100, "output": 10}


def test_a_retry_does_not_wait_at_a_replica_for_whose_slot_an_urgent_request_waits() -> None:
    full, other = Spot("a", slots=4), Spot("b", slots=4)
    world = World([full, other], IN_BULK)
    world.queue.headroom.own = 0.1  # urgent requests need a free slot
    for _ in range(8):
        world.come(number=2.0, tokens=100, output=10_000)
    world.run(1.0)
    assert world.queue.open_to("", NORMAL, [full, other]) == [full, other]
    assert world.come(**URGENT).state == WAITING
    assert world.queue.open_to("", NORMAL, [full, other]) == []
    other.load = 3
    world.free(other)  # the urgent request gets the slot
    world.free(full)
    assert world.queue.open_to("", NORMAL, [full, other]) == [full, other]


def test_a_replica_is_not_kept_for_an_urgent_request_that_the_policy_keeps_away() -> None:
    """Waiting requests were sent to the replica, and new ones waited for no reason."""
    spot = Spot("a", slots=4)
    world = World([spot], IN_BULK)
    world.queue.headroom.own = 0.1
    for _ in range(4):
        world.come(number=2.0, tokens=100, output=10_000)
    world.run(1.0)
    world.pool.closed_to = lambda place, leaving=-1: 1 << 1  # type: ignore[method-assign]
    world.free(spot)
    assert world.come(**URGENT).state == WAITING
    assert world.come(number=2.0, tokens=100, output=10).state == SENT


def test_a_request_of_a_limited_key_does_not_wait_there_either() -> None:
    full, other = Spot("a", slots=4), Spot("b", slots=8)
    world = World([full, other], IN_BULK)
    world.queue.headroom.own = 0.1
    world.pool.lanes = {"m": [full]}
    for _ in range(8):
        world.come(number=2.0, tokens=100, output=10_000)
    world.run(1.0)
    assert (full.load, other.load) == (4, 4)
    assert world.come(**URGENT, model="m").state == WAITING
    limit = Concurrency(0)
    ticket = world.come(number=2.0, tokens=100, output=10, concurrency=limit, key="k")
    limit.adopt(1, world.now)
    assert world.queue.woken(world.now) == (ticket, [other])


def test_aged_batch_does_not_use_the_slots_that_are_kept_from_it_until_it_is_starved() -> None:
    rules = config(batch_becomes_normal_after_s=1.0, classes={"batch": {"starvation_s": 20.0}})
    world = World([Spot("a", slots=16)], rules)
    late(world.queue.headroom, 25, world.now)
    for _ in range(30):
        world.come(**{**BATCH_REQUEST, "output": 10_000})
    spot = world.pool.spots[0]
    world.run(10.0)
    assert spot.load == 12
    world.run(10.0)  # after 15 s the others are starved
    assert spot.load > 12


def test_late_urgent_requests_at_replicas_with_batch_raise_the_level() -> None:
    assert HighClass().ttft_slo_s == 0.5
    world = World([Spot("a", slots=2)])
    for _ in range(20):
        world.come(**BATCH_REQUEST)  # each takes 2 s, so a slot is free every second
    for _ in range(10):
        world.come(**URGENT)
        world.run(3.0)
    assert world.queue.headroom.level > 2 * STEP
    assert sum(world.queue.counts.engine_inverted) > 0
    world.run(1000.0)
    world.assert_empty()


def test_a_long_prompt_and_a_whole_answer_teach_nothing() -> None:
    world = World([Spot("a", slots=2)])
    for _ in range(20):
        world.come(**BATCH_REQUEST)
    world.come(**{**URGENT, "tokens": 20_000})
    world.come(**URGENT, streamed=False)
    world.run(20.0)
    assert world.queue.headroom.level == 0.0


# -- waits that batch did not cause ---------------------------------------------------------------


def test_the_time_of_a_failed_attempt_teaches_nothing() -> None:
    world = World([Spot("a", slots=1), Spot("b", slots=1)])
    for _ in range(2):
        world.come(**{**BATCH_REQUEST, "output": 5000})
    world.run(1.0)
    ticket = world.come(**URGENT)
    assert ticket.state == SENT
    (other,) = [spot for spot in world.pool.spots if spot is not ticket.place]
    world.queue.runs.failed(ticket)
    retried_at = world.now + 10.0
    world.queue.runs.moved(ticket, other, retried_at)
    world.queue.runs.first_content(ticket, retried_at + 0.1)
    assert world.queue.headroom.level == 0.0


def test_a_late_answer_behind_batch_after_a_retry_raises_the_level() -> None:
    world = World([Spot("a", slots=1), Spot("b", slots=1)])
    for _ in range(2):
        world.come(**{**BATCH_REQUEST, "output": 5000})
    world.run(1.0)
    ticket = world.come(**URGENT)
    (other,) = [spot for spot in world.pool.spots if spot is not ticket.place]
    world.queue.runs.failed(ticket)
    world.queue.runs.moved(ticket, other, world.now)
    world.queue.runs.first_content(ticket, world.now + 1.0)
    assert world.queue.headroom.level == STEP
