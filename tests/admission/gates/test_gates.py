"""Backpressure: how many requests a replica receives, and how many stay in the router's queue."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, strategies as st

from policies.queueing.contract import order_names
from router.admission.timers import EARLY_S
from router.core.kv_estimate import report_kv
from tests.admission.world import Spot, World, config
from tests.examples import examples

BATCH = {"number": 4.0}
NARROW = {"prefill_tokens": 0}


def test_the_batch_rule_needs_a_free_slot() -> None:
    world = World([Spot("a", slots=4)])
    for _ in range(20):
        world.come(tokens=100, output=1000)
    assert world.pool.spots[0].waiting == 4
    world.run(1.0)  # four requests run
    assert world.pool.spots[0].waiting == 3


@pytest.mark.parametrize(("running", "most"), [(20, 1), (95, 1), (96, 2), (144, 3), (250, 3)])
def test_more_batch_requests_may_wait_at_an_engine_on_which_many_run(
    running: int, most: int
) -> None:
    world = World([Spot("a", slots=256)])
    for _ in range(running):
        world.come(tokens=1, output=10**6)
    world.run(60.0)
    spot = world.pool.spots[0]
    assert (spot.load, spot.waiting) == (running, 0)
    for _ in range(10):
        world.come(**BATCH, tokens=5000, output=10)
    assert spot.waiting == most


def test_idle_batch_goes_only_where_nothing_runs() -> None:
    world = World([Spot("a")], config(classes={"batch": {"idle": True}}))
    world.come(tokens=100, output=100)
    late = world.come(**BATCH, tokens=10, output=10)
    world.run(1.9)
    assert late not in world.started
    world.run(0.3)
    assert late in world.started


def test_a_full_kv_cache_closes_a_replica_on_which_something_runs() -> None:
    spot = Spot("a")
    world = World([spot])
    spot.kv_usage = 0.97
    world.free(spot)
    first = world.come(tokens=10, output=100)
    assert first in world.started  # nothing ran, so the figure must be wrong
    second = world.come(tokens=10, output=100)
    assert second not in world.started
    critical = world.come(number=0.0, tokens=10, output=100)
    assert critical in world.started  # the threshold of class critical is higher
    spot.kv_usage = None  # the KV usage is unknown
    world.free(spot)
    assert second in world.started


def test_who_has_gone_took_its_share_of_the_kv_cache_along() -> None:
    spot = Spot("a")
    world = World([spot])
    for _ in range(2):
        world.come(tokens=10, output=10)
    for _ in range(2):
        world.come(tokens=10, output=1000)
    world.run(0.1)  # all four requests have begun
    report_kv(spot, 0.96, 4)
    world.free(spot)
    late = [world.come(tokens=10, output=1000) for _ in range(2)]
    assert not set(late) & set(world.started)
    world.run(0.5)  # two requests have ended; no poll has reported this
    assert spot.inflight == 4
    assert set(late) <= set(world.started)  # with the two new requests there are four again
    assert world.come(tokens=10, output=10) not in world.started


def test_grants_of_one_turn_count_towards_the_kv_cache_before_they_have_leases() -> None:
    spot = Spot("a")
    spot.kv_tokens = 10_000
    rules = config(gates={"prefill_tokens": 10**6})
    world = World([spot], rules)
    report_kv(spot, 0.5, 0)
    spot.limit = 0
    world.free(spot)
    waiting = [world.come(tokens=2000, output=100) for _ in range(5)]
    spot.limit = 10**9
    world.free(spot)
    # 0.5, 0.7 and 0.9 are below the limit of 0.95; 1.0 is not.
    assert [ticket in world.started for ticket in waiting] == [True, True, True, False, False]
    assert spot.kv_usage == 1.0


def test_the_pace_closes_a_replica_only_where_that_is_asked_for() -> None:
    for tpot_s, waits in ((0.0, False), (0.15, True)):
        spot = Spot("a")
        world = World([spot], config(gates={"tpot_s": tpot_s}))
        world.come(tokens=10, output=100)
        spot.cadence_s = 0.2
        world.free(spot)
        ticket = world.come(tokens=10, output=10)
        assert (ticket not in world.started) is waits


def test_early_polls_are_asked_for_only_where_they_help_and_ever_more_rarely() -> None:
    spot = Spot("a", slots=2)
    world = World([spot])
    for _ in range(10):
        world.come(tokens=50, output=500, streamed=False)
    world.run(9.0)  # two requests run for ten seconds, three wait: a poll changes nothing
    assert 5 <= world.polls <= 20
    streams = World([Spot("a", slots=2)])
    for _ in range(10):
        streams.come(tokens=50, output=500)
    streams.run(9.0)
    assert streams.polls == 0


def test_a_replica_that_tells_nothing_is_used_up_to_a_learned_limit() -> None:
    spot = Spot("a", slots=None)
    world = World([spot])
    world.blinded(spot)
    for _ in range(2000):
        world.come(tokens=50, output=50, streamed=False)
    assert spot.inflight == 64
    world.run(30.0)
    # The engine has 64 slots; the learned limit stays near, with some requests in its own queue.
    assert 40 <= spot.inflight <= 300
    world.run(200.0)
    assert len(world.done) == 2000


@examples(20)
@given(st.integers(0, 10**6))
def test_two_early_polls_of_a_replica_are_never_closer_than_half_a_second(seed: int) -> None:
    """Holds for any tick rate and any grants."""
    rng = Random(seed)
    spots = [Spot(name, slots=2) for name in "ab"]
    world = World(spots, config(gates=NARROW), tick_s=0.003)
    polled: dict[Spot, list[float]] = {spot: [] for spot in spots}
    world.on_polled = lambda spot: polled[spot].append(world.now)
    for _ in range(150):
        world.come(
            number=rng.uniform(0.0, 4.4),
            tokens=rng.randrange(200),
            output=rng.randrange(1, 20),
            streamed=False,
        )
        world.run(rng.choice((0.0, 0.001, 0.05)))
    world.run(5.0)
    for times in polled.values():
        assert len(times) > 2
        assert min(b - a for a, b in pairwise(times)) >= EARLY_S - 1e-9


@examples(30)
@given(st.integers(0, 10**6), st.sampled_from((1, 3, 7)), st.sampled_from(order_names()))
def test_no_gate_is_ever_passed_by_more_than_its_target(seed: int, target: int, name: str) -> None:
    """The number of waiting requests per replica, over random arrivals, ends, departures and polls.

    Between two events, no request may wait in the router while a replica could accept it.
    """
    rng = Random(seed)
    spots = [Spot(name, slots=rng.choice((2, 8, None))) for name in "abc"]
    rules = config(
        policy=name,
        gates={"waiting": target, "prefill_tokens": 0},
        classes={"critical": {"waiting": target}, "batch": {"prefill_tokens": 0}},
    )
    world = World(spots, rules)
    world.poll_every(1.0)
    came = []
    for _ in range(200):
        act = rng.random()
        if act < 0.8:
            came.append(
                world.come(
                    number=rng.uniform(0.0, 4.4),
                    key=f"k{rng.randrange(4)}",
                    tokens=rng.randrange(5000),
                    output=rng.randrange(100),
                    streamed=rng.random() < 0.8,
                )
            )
        elif act < 0.9 and came:
            world.leave(rng.choice(came))
        else:
            spot = rng.choice(spots)
            more = rng.choice((0, 0, 2)) - spot.foreign_waiting
            spot.foreign_waiting += more
            spot.waiting += more
            spot.foreign_load += more
            spot.load += more
            world.free(spot)
        for spot in spots:
            whole = spot.whole_fresh + spot.whole_older + spot.whole_seen
            assert spot.waiting - spot.foreign_waiting - whole <= target
            if spot.slots is not None and spot.waiting - spot.foreign_waiting > target:
                assert spot.inflight <= spot.slots + target
            slots = world.pool.slots(spot)
            # While urgent requests are late, they go only to replicas with a free slot.
            more = target if world.queue.headroom.level == 0.0 else 0
            # A request needs a whole slot, and the learned number of slots may be a fraction.
            has_room = slots is None or spot.load + 1 <= slots + more
            if spot.waiting < target and has_room and spot.kv_usage is None:
                assert not any(world.queue.depth[:4])
        world.run(rng.choice((0.0, 0.05, 0.5)))


def test_signals_that_are_lost_stop_nothing() -> None:
    spot = Spot("a")
    world = World([spot])
    spot.kv_usage = 0.5
    for _ in range(50):
        world.come(tokens=50, output=50)
    spot.kv_usage = spot.slots = spot.cadence_s = None
    world.blinded(spot)
    world.run(60.0)
    assert len(world.done) == 50
