"""End to end: emulated engines, one of which stalls, Hedgerow in front of them, one row."""

from bench.fleet import engines
from bench.hedging.http import contestants
from bench.hedging.http.stage import Stage
from bench.hedging.http.traffic import Fault, Scenario, Size
from router.lab.overhead.processes import Orderly, Placement


def test_a_second_of_traffic_through_hedgerow() -> None:
    scenario = Scenario(
        "smoke",
        "one engine stands still for a moment",
        ("off",),
        faults=lambda since, until: (
            Fault(since, 0, {"freeze": True}),
            Fault(since + 0.3, 0, {}),
        ),
    )
    spec = engines.Spec(count=2, speed=8.0)
    with Orderly("bench.hedging.http.load") as load:
        stage = Stage(spec, Size(0.2, 0.0, 1.0), 1, Placement(), load)
        row = stage.measure("off", contestants.KINDS["off"](0.0), scenario)
    assert row.absent == ""
    seen = row.figures
    assert seen is not None
    assert seen.urgent.requests + seen.other.requests > 0
    assert (seen.errors, seen.copies) == ({}, 0)
    assert abs(seen.extra_asked) < 0.01
    slowest = max(seen.urgent.worst or 0.0, seen.other.worst or 0.0)
    assert slowest > 0.1  # a request on the engine that stalled
    assert row.router_cpu > 0 and row.engines_cpu > 0
