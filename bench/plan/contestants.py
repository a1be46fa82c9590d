"""The compared controllers of a fleet's size, and the search for the best parameter of each.

Each controller has one parameter, its *knob*: the number of replicas (static), a threshold or
target of the utilisation (rules), or the utilisation limit (plan). The cheapest value that reaches
the SLO attainment counts, known in hindsight. SageServe's rule has the published thresholds. The
plan has a second row, with the attainment of SageServe's rule with the same demand. These two rows
are left out if there are several kinds of replicas, which that rule does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Final

from bench.plan.fleet import Controller, Outcome, run
from bench.plan.planner import Forecasts, plan_controller, types_of
from bench.plan.rules import (
    SAGESERVE_UP,
    hpa_controller,
    reactive_controller,
    sageserve_controller,
    static_controller,
)
from bench.plan.traffic import WEEK
from bench.plan.world import Counts, PoolKey, World

STATIC, HPA, REACTIVE, SAGESERVE = "static", "HPA", "reactive", "SageServe's rule"
PLAN, EQUAL = "plan", "plan, in SLO as SageServe's rule"
NAMES: Final = (STATIC, HPA, REACTIVE, SAGESERVE, PLAN, EQUAL)
# Seconds until a new replica serves: if the weights are on the machine, and if a machine must be
# found first.
LEADS_S: Final = (300.0, 1200.0)
TARGET: Final = 0.99  # SLO attainment that a controller must reach
EVEN: Final = 1e-4  # attainments that differ by less count as equal
# Values of the knob, from the cheapest to the dearest.
UTILISATIONS: Final = tuple(percent / 100.0 for percent in range(100, 19, -2))

# Returns the outcome of a knob, or None if it does not reach the attainment `least`.
Play = Callable[[float], Outcome | None]


@dataclass(frozen=True, slots=True)
class Best:
    """The best parameter of a contestant, and its outcome; both None if none attains enough."""

    contestant: str
    knob: float | None
    outcome: Outcome | None


def contests(world: World, forecasts: Forecasts) -> list[Best]:
    """Simulate the second week with each controller, and return the best of each."""
    begin = _spread(
        world, {region: ceil(world.load(region, WEEK - 1)) + 1 for region in world.demands}
    )

    def play(of: Callable[[float], Controller], least: float) -> Play:
        return cache(lambda knob: run(world, WEEK, begin, of(knob), least))

    found = [
        _static(world),
        cheapest(HPA, UTILISATIONS, play(lambda target: hpa_controller(world, target), TARGET)),
        cheapest(REACTIVE, UTILISATIONS, play(lambda up: reactive_controller(world, up), TARGET)),
    ]
    least = TARGET
    if len(world.kinds) == 1:
        published = run(world, WEEK, begin, sageserve_controller(world), 0.0)
        assert published is not None
        found.append(Best(SAGESERVE, SAGESERVE_UP, published))
        equal = published.attainment - EVEN
        least = min(TARGET, equal)
    plan = play(lambda limit: plan_controller(world, types_of(world, limit), forecasts), least)
    found.append(bisected(PLAN, UTILISATIONS, plan, TARGET))
    if len(world.kinds) == 1:
        found.append(bisected(EQUAL, UTILISATIONS, plan, equal))
    return found


def _static(world: World) -> Best:
    peaks = {region: world.peak(region) for region in world.demands}
    peak = max(peaks.values())

    def play(count: float) -> Outcome | None:
        fleet = _spread(world, {region: ceil(count * own / peak) for region, own in peaks.items()})
        return run(world, WEEK, fleet, static_controller(fleet), TARGET)

    return cheapest(STATIC, range(max(1, peak // 3), peak + 1), play)


def _spread(world: World, counts: Counts | dict[str, int]) -> dict[PoolKey, int]:
    found: dict[PoolKey, int] = {}
    for region, count in counts.items():
        found |= world.spread(region, count)
    return found


def cheapest(contestant: str, knobs: Sequence[float], play: Play) -> Best:
    """Return the cheapest knob that attains enough. All knobs are played."""
    played = [(knob, play(knob)) for knob in knobs]
    enough = [(one.cost, knob, one) for knob, one in played if one is not None]
    if not enough:
        return Best(contestant, None, None)
    _, knob, outcome = min(enough, key=lambda one: one[:2])
    return Best(contestant, knob, outcome)


def bisected(contestant: str, knobs: Sequence[float], play: Play, least: float) -> Best:
    """Return a knob that attains `least`, while its cheaper neighbour does not.

    `knobs`: from the cheapest to the dearest. Only a few knobs are played. If the attainment does
    not fall steadily with the cost, a cheaper knob may attain `least` as well.
    """

    def attains(knob: float) -> bool:
        outcome = play(knob)
        return outcome is not None and outcome.attainment >= least

    low, high = 0, len(knobs)
    while low < high:
        middle = (low + high) // 2
        if attains(knobs[middle]):
            high = middle
        else:
            low = middle + 1
    return (
        Best(contestant, knobs[low], play(knobs[low]))
        if low < len(knobs)
        else Best(contestant, None, None)
    )
