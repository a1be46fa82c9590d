"""The order `slide` with the policy `gain` while an overload lasts."""

from random import Random

from bench.gain.world import MOONCAKE, OURS, SHARES, Law, Score, World
from router.core.errors import Reason
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import BLOCK, Kept, Script

PROMPT, OUTPUT = 12_000, 300
REQUESTS = 900
LOAD = 2.0  # of the rate that saturates the fleet
LAW = Law(BLOCK, 1.0, REQUESTS, ((float(PROMPT), OUTPUT),), (0.0,))


def arrivals(rate: float) -> list[Arrival]:
    rng = Random(1)
    now, found = 0.0, []
    for number in range(REQUESTS):
        now += rng.expovariate(rate)
        (name,) = rng.choices(list(SHARES), list(SHARES.values()))
        found.append(Arrival(number, now, PROMPT, OUTPUT, priority=name))
    return found


def test_requests_are_in_time_behind_a_deep_backlog_of_late_ones() -> None:
    world = World("overload", "", LAW, MOONCAKE)
    kept, score = Kept(), Score(world.slos)
    simulate(world.scenario(OURS, 1), Script(arrivals(LOAD * world.full_rate)), kept)
    for outcome in kept.outcomes:
        assert outcome.reason is Reason.OK
        if outcome.arrival.number >= REQUESTS // 2:  # the backlog is deep by then
            score.count(outcome)
    assert len(kept.outcomes) == REQUESTS
    assert score.ratio > 0.25
