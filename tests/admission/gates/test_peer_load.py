"""Requests of other routers: what a router learns from polls, and what it does not wait for."""

import pytest

from policies.queueing.ticket import WAITING
from router.admission.gates.peer_load import PeerLoad
from router.core.urgency import HIGH
from tests.admission.world import Spot, World, config

IN_BULK = config(classes={"batch": {"prefill_tokens": 2048}})


def foreign(spot: Spot, running: int, waiting: int = 0) -> None:
    """Other routers have these requests at the replica, as a poll shows."""
    load = running + waiting
    spot.load += load - spot.foreign_load
    spot.foreign_load = load
    spot.waiting += waiting - spot.foreign_waiting
    spot.foreign_waiting = waiting
    spot.polls_heard += 1


def test_three_equal_routers_are_learned_as_two_others() -> None:
    peers = PeerLoad()
    for number in range(1000):
        # At a single replica the loads differ.
        peers.polled(*((4, 11) if number % 2 else (6, 9)))
    assert peers.ratio == pytest.approx(2.0, rel=0.02)
    for _ in range(1000):
        peers.polled(5, 0)
    assert peers.ratio < 0.001


def test_an_urgent_request_waits_for_slots_of_this_router_only() -> None:
    spot = Spot("a", slots=2)
    world = World([spot], IN_BULK)
    world.queue.headroom.own = 1.0
    foreign(spot, 2)
    world.free(spot)
    assert world.come(number=float(HIGH)).state != WAITING  # another router holds the slots
    foreign(spot, 0)
    world.free(spot)
    assert world.come(number=float(HIGH), key="other").state != WAITING
    assert world.come(number=float(HIGH), key="third").state == WAITING  # two own requests run


def test_a_late_answer_behind_the_requests_of_others_raises_the_level() -> None:
    spot = Spot("a", slots=2, prefill_rate=10.0)  # the answer comes after 1 s
    for others in (0, 2):
        world = World([spot], IN_BULK)
        foreign(spot, others)
        world.free(spot)
        world.come(number=float(HIGH), tokens=10, output=10)
        world.run(30.0)
        assert (world.queue.headroom.level > 0.0) is bool(others)
        assert world.queue.counts.engine_inverted == [0] * 5  # no batch request of this router
