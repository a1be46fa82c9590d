"""Faults in the simulated fleet, and the outcome of the affected requests."""

from math import inf

import pytest

from router.config.model import Health
from router.core.errors import Reason
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Fault
from router.lab.simulator.simulation import Simulation, simulate
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import Kept, Script, blocks, world

NET = 0.001


def test_what_it_had_begun_to_answer_is_cut_off() -> None:
    kill = Fault(at=0.5, replica=0, kind="kill", until=inf)
    kept = Kept()
    simulate(world(replicas=2, faults=(kill,)), Script([Arrival(0, 0.0, 100, 100)]), kept)
    (one,) = kept.outcomes
    assert (one.reason, one.attempts, one.replica) == (Reason.REPLICA_RESET, 1, "r0")
    assert one.ttft_s == pytest.approx(0.110 + 2 * NET)
    assert one.ended == pytest.approx(0.5 + NET)


@pytest.mark.parametrize(
    ("retry_body", "ended"), [(400, (Reason.OK, 2)), (399, (Reason.REPLICA_RESET, 1))]
)
def test_a_lost_request_is_sent_again_if_its_body_was_kept(
    retry_body: int, ended: tuple[Reason, int]
) -> None:
    kill = Fault(at=0.05, replica=0, kind="kill", until=inf)
    kept = Kept()
    scenario = world(replicas=2, faults=(kill,), retry_body=retry_body)
    simulate(scenario, Script([Arrival(0, 0.0, 100, 3)]), kept)
    (one,) = kept.outcomes
    assert (one.reason, one.attempts) == ended


def caching_world(interval_s: float) -> list[Outcome]:
    """The same prompt before a restart of its replica, and twice afterwards."""
    kill = Fault(at=5.0, replica=0, kind="kill", until=6.0)
    words = blocks(160, 3)
    arrivals = [Arrival(number, at, 160, 2, words) for number, at in enumerate((0.0, 20.0, 21.0))]
    kept = Kept()
    simulate(
        world(policy="kv_aware", faults=(kill,), interval_s=interval_s), Script(arrivals), kept
    )
    return kept.outcomes


def test_a_replica_comes_back_with_nothing_in_its_cache() -> None:
    first, second, third = caching_world(1.0)
    assert (first.cached_tokens, second.cached_tokens) == (0, 0)
    assert third.cached_tokens == 144  # the last token is always computed
    # The polls have shown that the engine has restarted.
    assert (second.expected_tokens, third.expected_tokens) == (0, 160)


def test_a_dead_replica_is_down_after_three_probes_and_up_after_one_each_time() -> None:
    kill = Fault(at=1.0, replica=0, kind="kill", until=40.0)
    again = Fault(at=60.0, replica=0, kind="kill", until=80.0)
    scenario = world(replicas=2, faults=(kill, again), health=Health(interval_s=2.0))
    arrivals = [Arrival(0, 90.0, 10, 1)]
    simulation = Simulation(scenario, Script(arrivals), Kept())
    seen = {}

    def look(now: float) -> None:
        seen[now] = simulation.routers[0].fleet.replicas["r0"].state(now)

    for when in (0.9, 3.0, 11.0, 39.9, 45.0, 70.0, 85.0):
        simulation.clock.at(when, look)
    simulation.run()
    assert list(seen.values()) == ["ready", "ready", "down", "down", "ready", "down", "ready"]


def test_overlapping_faults_end_one_by_one() -> None:
    faults = (
        Fault(at=0.0, replica=0, kind="slow", until=20.0, factor=2.0),
        Fault(at=5.0, replica=0, kind="slow", until=15.0, factor=3.0),
        Fault(at=30.0, replica=0, kind="kill", until=40.0),
        Fault(at=35.0, replica=0, kind="kill", until=50.0),
    )
    times = (1.0, 10.0, 17.0, 25.0, 45.0, 55.0)
    kept = Kept()
    arrivals = [Arrival(number, at, 90, 1) for number, at in enumerate(times)]
    simulate(world(faults=faults), Script(arrivals), kept)
    found = [kept[number].ttft_s for number in range(6)]
    assert found[:4] == pytest.approx([0.1 * factor + 2 * NET for factor in (2, 6, 2, 1)])
    assert found[4] is None
    assert kept[4].reason is Reason.NO_REPLICA  # as the probes have detected
    assert found[5] == pytest.approx(0.1 + 2 * NET)


def test_an_answer_that_stops_for_too_long_is_cut_off() -> None:
    freeze = Fault(at=0.5, replica=0, kind="freeze", until=100.0)
    kept = Kept()
    scenario = world(faults=(freeze,), token_gap_s=7.0)
    totals = simulate(scenario, Script([Arrival(0, 0.0, 100, 50)]), kept)
    assert kept[0].reason is Reason.TOKEN_GAP_TIMEOUT
    assert kept[0].ended == pytest.approx(7.5)
    assert totals.engines[0].aborted == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "explode"},
        {"at": 2.0, "until": 2.0},
        {"at": -1.0},
        {"kind": "freeze", "until": inf},
        {"factor": 0.0},
    ],
)
def test_faults_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"at": 1.0, "replica": 0, "kind": "slow", "until": 2.0}
    Fault(**right)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Fault(**{**right, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not exist"):
        world(faults=(Fault(at=1.0, replica=1, kind="slow", until=2.0),))


def test_a_drained_replica_ends_its_requests_and_gets_no_more() -> None:
    drain = Fault(at=0.05, replica=0, kind="drain", until=5.0)
    arrivals = [Arrival(number, at, 100, 20) for number, at in enumerate((0.0, 0.1, 0.2, 6.0, 6.1))]
    kept = Kept()
    simulate(world(replicas=2, faults=(drain,)), Script(arrivals), kept)
    assert all(one.reason is Reason.OK for one in kept.outcomes)
    assert [kept[number].replica for number in range(3)] == ["r0", "r1", "r1"]
    assert {kept[3].replica, kept[4].replica} == {"r0", "r1"}


def test_a_replica_whose_first_tokens_are_overdue_is_left_for_others() -> None:
    """As in the proxy: the replica is suspect after 5 s, then ejected, although probes succeed."""
    freeze = Fault(at=10.0, replica=0, kind="freeze", until=60.0)
    arrivals = [Arrival(number, float(number), 100, 2) for number in range(50)]
    kept = Kept()
    totals = simulate(world(replicas=2, faults=(freeze,)), Script(arrivals), kept)
    moved = [one for one in kept.outcomes if one.attempts > 1]
    # Round robin uses the replica until the first request is overdue.
    first, trials = moved[:3], moved[3:]
    assert sorted(one.arrival.number for one in first) == [10, 12, 14]
    assert len(trials) == 1
    assert totals.ejections == 2
    assert all(one.reason is Reason.OK and one.attempts <= 2 for one in kept.outcomes)
    # A request moves when its replica has shown no work for 5 s and is ejected.
    assert all(one.replica == "r1" and one.ended - one.arrival.at <= 8.5 for one in moved)
