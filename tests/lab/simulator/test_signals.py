"""What a router learns of engines from polls: the delay, the interval, and the derived load."""

from dataclasses import replace
from typing import Any

import pytest

from router.fleet.signals import Signals
from router.lab.simulator.scenario import Fault, Polls
from router.lab.simulator.simulation import Simulation, simulate
from router.lab.simulator.traffic import Arrival
from router.lab.simulator.workloads import Shared
from tests.lab.simulator.worlds import BLOCK, CORE, Kept, Script, world

EXACT = Polls(jitter=0.0, delay_s=0.25)  # exactly every second
LATE = [Arrival(99, 30.0, 10, 1)]  # a late request, so that the run continues


def watched(
    arrivals: list[Arrival], times: tuple[float, ...], router: int = 0, **changes: Any
) -> list[tuple[Signals, int, int]]:
    """The router's knowledge of replica r0 at some moments: signals, load, waiting requests."""
    simulation = Simulation(
        world(**{"interval_s": 1.0, **changes}), Script(arrivals + LATE), Kept()
    )
    replica = simulation.routers[router].fleet.replicas["r0"]
    seen = []

    def look(now: float) -> None:
        seen.append((replica.reports.signals, replica.load, replica.waiting))

    for when in times:
        simulation.clock.at(when, look)
    simulation.run()
    return seen


def test_a_poll_reports_the_state_at_its_start_and_arrives_later() -> None:
    """A request runs from 1.001 to 1.501; polls are 0.4 s apart."""
    polls = replace(EXACT, delay_s=0.3)
    arrivals = [Arrival(0, 1.0, 90, 21)]
    times = tuple(number / 100 for number in range(90, 200))
    seen = watched(arrivals, times, interval_s=0.1, polls=polls)
    known = [when for when, (signals, _, _) in zip(times, seen, strict=True) if signals.running]
    # The request runs for 0.5 s; the router learns its begin and its end up to 0.4 s later.
    assert 1.001 + 0.3 <= known[0] <= 1.001 + 0.3 + 0.41
    assert 1.501 + 0.3 - 0.41 <= known[-1] <= 1.501 + 0.3 + 0.41
    assert known[-1] > 1.502  # the request had ended, and the router did not know it yet


def test_the_figures_are_the_engines_own() -> None:
    # 100 ms of prefill, then tokens every 20 ms: running all the time from 0 on.
    arrivals = [Arrival(number, 0.0, 90, 500) for number in range(CORE.max_num_seqs + 3)]
    (signals, load, waiting), *_ = watched(arrivals, (5.0,), polls=EXACT)
    assert (signals.running, signals.waiting) == (8, 3)
    assert signals.kv_tokens == CORE.num_blocks * BLOCK
    assert signals.block_tokens == BLOCK
    assert signals.slots is None  # vLLM does not report its slots
    assert signals.prompt_tokens == signals.cache_queries == 8 * 90
    assert signals.cache_hits == signals.preemptions == 0
    assert signals.kv_usage is not None and 0.2 < signals.kv_usage < 1.0
    assert signals.generated_tokens is not None and signals.generated_tokens > 8 * 100
    # The router sent all of the load itself: no request is counted twice.
    assert (load, waiting) == (11, 3)


def test_a_poll_of_an_idle_replica_that_is_skipped_changes_nothing() -> None:
    traffic = Shared(
        rate=3.0,
        duration_s=60.0,
        groups=6,
        prefix_tokens=200,
        question_tokens=30,
        output_tokens=20,
        block_tokens=BLOCK,
    )
    scenario = world(
        replicas=4,
        policy="kv_aware",
        routers=2,
        interval_s=0.3,
        stale_s=1.0,
        polls=Polls(loss=0.2),
        faults=(Fault(at=20.0, replica=2, kind="kill", until=25.0),),
    )
    skipping, asking = Kept(), Kept()
    few = simulate(scenario, traffic, skipping)
    simulation = Simulation(scenario, traffic, asking)
    for poller in simulation.pollers:
        poller.skips_idle = False
    many = simulation.run()
    assert few.events < many.events
    assert few.polls == many.polls
    assert skipping.lines() == asking.lines()


@pytest.mark.parametrize(
    "wrong",
    [
        {"jitter": 1.0},
        {"loss": 1.1},
        {"delay_s": -0.1},
    ],
)
def test_polls_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="polls"):
        Polls(**wrong)
