"""Runs without faults: exact times, caches, policies, several routers, the same seed."""

import gc
import hashlib
import os
import subprocess
import sys

import pytest

from policies.contract import RequestView
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, AttemptState
from router.lab.simulator.exchange import SimulatedAttempt, SimulatedExchange
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Fault, Polls, Scenario
from router.lab.simulator.simulation import Simulation, simulate
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Arrival, Traffic
from router.lab.simulator.workloads import Chat, Lengths, Mix, Shared, Unique
from tests.lab.simulator.worlds import BLOCK, TIMING, Kept, Script, blocks, world
from tests.places import ROOT

NET = 0.001


def test_a_lone_request_takes_the_engines_time_and_the_network_both_ways() -> None:
    kept = Kept()
    totals = simulate(world(), Script([Arrival(0, 3.0, 100, 5)]), kept)
    (one,) = kept.outcomes
    assert one.ttft_s == pytest.approx(TIMING.prefill_alone_s(100) + 2 * NET, abs=1e-12)
    assert one.tpot_s == pytest.approx(0.020, abs=1e-12)
    assert one.ended - one.first == pytest.approx(4 * 0.020, abs=1e-12)
    assert (one.replica, one.router, one.attempts, one.reason) == ("r0", 0, 1, Reason.OK)
    assert one.dispatched == 3.0
    assert totals.requests == 1
    assert totals.ends == {Reason.OK: 1}
    assert totals.engines[0].busy_s == pytest.approx(0.110 + 4 * 0.020, abs=1e-12)
    assert totals.engines[0].generated_tokens == 5


def test_what_generates_nothing_ends_with_its_prefill() -> None:
    kept = Kept()
    simulate(world(), Script([Arrival(0, 0.0, 100, 0, kind="embeddings")]), kept)
    assert kept[0].reason is Reason.OK
    assert kept[0].ended == pytest.approx(0.110 + 2 * NET, abs=1e-12)


def test_the_second_turn_finds_the_first_one_in_the_cache() -> None:
    """Generated tokens are included, although the router does not know them."""
    words = blocks(160, 7)

    def follow(ended: Arrival, now: float) -> list[Arrival]:
        return [Arrival(1, now + 1.0, 160, 4, words)] if ended.number == 0 else []

    kept = Kept()
    first = Arrival(0, 0.0, 64, 33, words[:4], answer_blocks=words[4:6])
    scenario = world(replicas=4, policy="kv_aware")
    totals = simulate(scenario, Script([first], follow), kept)
    second = kept[1]
    assert second.arrival.at == kept[0].ended + 1.0
    assert second.replica == kept[0].replica
    assert second.expected_tokens == 4 * BLOCK
    assert second.cached_tokens == 6 * BLOCK
    assert sum(engine.cached_tokens for engine in totals.engines) == second.cached_tokens
    assert second.ttft_s == pytest.approx(TIMING.prefill_alone_s(160, 96) + 2 * NET, abs=1e-9)


def test_what_requests_report_as_cached_is_what_the_engines_count() -> None:
    kept = Kept()
    traffic = Shared(
        rate=20.0,
        duration_s=20.0,
        groups=6,
        prefix_tokens=200,
        question_tokens=30,
        output_tokens=4,
        block_tokens=BLOCK,
    )
    totals = simulate(world(replicas=3, policy="kv_aware"), traffic, kept)
    assert totals.ends == {Reason.OK: len(kept.outcomes)}
    cached = sum(one.cached_tokens for one in kept.outcomes)
    assert cached == sum(engine.cached_tokens for engine in totals.engines) > 0
    prompts = sum(one.arrival.prompt_tokens for one in kept.outcomes)
    assert prompts == sum(engine.prompt_tokens for engine in totals.engines)


def test_nothing_arrives_after_until_and_what_is_there_ends() -> None:
    kept = Kept()

    def follow(ended: Arrival, now: float) -> list[Arrival]:
        return [Arrival(ended.number + 100, now + 5.0, 10, 1)]

    arrivals = [Arrival(number, float(number), 100, 50) for number in range(10)]
    totals = simulate(world(), Script(arrivals, follow), kept, until=3.5)
    assert sorted(one.arrival.number for one in kept.outcomes) == [0, 1, 2, 3]
    assert totals.requests == 4
    assert all(one.reason is Reason.OK for one in kept.outcomes)


def test_traffic_that_goes_back_in_time_or_has_other_blocks_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"request 1 arrives at 1\.0 s, but the clock is at 2\.0 s"
    ):
        simulate(world(), Script([Arrival(0, 2.0, 10, 1), Arrival(1, 1.0, 10, 1)]), Kept())
    for never in ("nan", "inf"):
        with pytest.raises(ValueError, match=f"arrives at {never} s"):
            simulate(world(), Script([Arrival(0, float(never), 10, 1)]), Kept())
    with pytest.raises(ValueError, match=r"request 1 arrives at 0\.5 s"):
        early = [Arrival(1, 0.5, 10, 1)]
        simulate(world(), Script([Arrival(0, 2.0, 10, 1)], lambda ended, now: early), Kept())
    with pytest.raises(ValueError, match="blocks have 16 tokens, those of the traffic 512"):
        simulate(world(), Script([], block_tokens=512), Kept())


def test_traffic_without_a_request_ends_at_once() -> None:
    totals = simulate(world(interval_s=1.0), Script([]), Kept())
    assert (totals.requests, totals.events, totals.seconds) == (0, 0, 0.0)


def test_a_recorder_can_see_the_load_of_every_replica() -> None:
    class Sampled(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.loads: list[tuple[float, list[float]]] = []

        def sampled(self, now: float, loads: list[float]) -> None:
            self.loads.append((now, list(loads)))

    kept = Sampled()
    arrivals = [Arrival(0, 0.0, 100, 101), Arrival(1, 0.0, 100, 1), Arrival(2, 0.5, 100, 101)]
    simulate(world(replicas=2, sample_s=1.0), Script(arrivals), kept)
    assert kept.loads[0] == (0.0, [0, 0])  # before any request has arrived over the network
    assert kept.loads[1] == (1.0, [2, 0])
    assert [now for now, _ in kept.loads] == [0.0, 1.0, 2.0]


# -- the same seed --------------------------------------------------------------------------------


def lively_world() -> tuple[Traffic, Scenario]:
    """A scenario with mixed traffic, faults, lost polls and several routers."""
    traffic = Mix(
        Chat(rate=12.0, duration_s=40.0, block_tokens=BLOCK, message=Lengths(60.0, 0.8, 400)),
        Shared(
            rate=6.0,
            duration_s=40.0,
            groups=9,
            prefix_tokens=320,
            question_tokens=40,
            output_tokens=20,
            block_tokens=BLOCK,
        ),
        Unique(rate=3.0, duration_s=40.0, block_tokens=BLOCK, prompt=Lengths(300.0, 0.5, 2000)),
    )
    scenario = world(
        replicas=5,
        policy="kv_aware",
        routers=3,
        interval_s=0.2,
        polls=Polls(loss=0.1),
        faults=(
            Fault(at=5.0, replica=1, kind="kill", until=9.0),
            Fault(at=12.0, replica=2, kind="freeze", until=30.0),
            Fault(at=15.0, replica=3, kind="slow", until=25.0, factor=4.0),
        ),
        seed=5,
    )
    return traffic, scenario


def lively() -> tuple[list[str], Totals]:
    traffic, scenario = lively_world()
    kept = Kept()
    totals = simulate(scenario, traffic, kept)
    return kept.lines(), totals


def digest() -> str:
    lines, totals = lively()
    return hashlib.sha256("\n".join([*lines, repr(totals)]).encode()).hexdigest()


def test_the_same_seed_is_the_same_run_to_the_last_bit() -> None:
    lines, totals = lively()
    assert totals.requests == len(lines) > 500
    assert totals.retries > 0
    assert len(totals.ends) > 1
    again, totals_again = lively()
    assert lines == again
    assert totals == totals_again


def test_another_process_with_other_hashes_runs_the_same() -> None:
    top = ROOT
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "from tests.lab.simulator.test_simulation import digest as d;print(d())",
        ],
        cwd=top,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(top)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == digest()


def test_what_has_ended_is_gone_at_once() -> None:
    """Memory does not grow with the requests: no reference, not even a cycle, keeps them."""

    class Counted:
        def __init__(self) -> None:
            self.ended_ = 0

        def ended(self, outcome: Outcome) -> None:
            self.ended_ += 1

    def alive() -> int:
        kinds = (
            SimulatedExchange,
            SimulatedAttempt,
            AttemptState,
            Attempt,
            RequestView,
            Outcome,
            Arrival,
        )
        return sum(isinstance(found, kinds) for found in gc.get_objects())

    traffic, scenario = lively_world()
    gc.collect()
    gc.disable()
    try:
        before = alive()
        recorder = Counted()
        simulation = Simulation(scenario, traffic, recorder)
        simulation.run()
        assert recorder.ended_ > 500
        assert alive() == before
    finally:
        gc.enable()


def test_a_leak_is_an_error() -> None:
    simulation = Simulation(world(), Script([Arrival(0, 0.0, 10, 1)]), Kept())
    simulation.routers[0].fleet.replicas["r0"].inflight += 1
    with pytest.raises(RuntimeError, match="leases of r0 are held"):
        simulation.run()


def test_a_policy_that_fails_is_counted_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from policies.routing.least_load import LeastLoad

    def fails(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(LeastLoad, "pick", fails)
    monkeypatch.setattr(LeastLoad, "on_fleet_change", fails)
    arrivals = [Arrival(number, float(number), 10, 1) for number in range(5)]
    totals = simulate(world(replicas=3, policy="least_load"), Script(arrivals), Kept())
    assert totals.ends == {Reason.OK: 5}
    assert totals.policy_errors == 1 + 5  # the fleet, then five requests
