"""Judges the router's predictions for emulated engines in the simulator.

The scenarios are those of `bench.fleet.simulated`, at several loads: prompts of different lengths,
shared prefixes, conversations, engines of two speeds, an engine that becomes slow. The router uses
its default routing policy. Its predictions are judged after a warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from bench.findings.found import Found
from bench.findings.stored import show
from bench.fleet.simulated.worlds import (
    FLEET,
    TWO_SPEEDS,
    WARM,
    Measured,
    World,
    chat,
    routed,
    shared,
    stragglers,
    unique,
)
from bench.predictors.errors import Row, columns, read, within
from router.core.speed_learner import SpeedLearner
from router.core.text.table import build
from router.lab.replay.workers import run_all
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import resized
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.workloads import Lengths, Unique

POLICY = "kv_aware"
REPLICAS = 4  # number of replicas in scenarios with equal replicas
REQUESTS, QUICK = 6000, 300
MODERATE = 0.7  # the goals apply up to this load, as a share of the saturation rate
TTFT_GOAL, TPOT_GOAL = 15.0, 10.0  # maximum MAPE in percent for emulated engines


def measure(world: World, seed: int) -> Row:
    """Simulate a scenario and return the prediction errors. Raises the errors of `Simulation`."""
    recorder = _WarmUp(WARM * world.seconds)
    simulation = Simulation(world.scenario(seed), world.traffic(seed), recorder)
    recorder.learners = [
        replica.learned.speeds
        for router in simulation.routers
        for replica in router.fleet.replicas.values()
    ]
    simulation.run()
    return read(f"{world.name} {world.unit}", recorder.learners).since(recorder.before)


class _WarmUp:
    """Reads the errors at the end of the warm-up, so that they can be subtracted."""

    def __init__(self, until: float) -> None:
        self.learners: list[SpeedLearner] = []
        self.before = Row("")
        self._until = until
        self._is_over = False

    def ended(self, outcome: Outcome) -> None:
        if not self._is_over and outcome.arrival.at >= self._until:
            self._is_over = True
            self.before = read("", self.learners)


def long_answers(rate: float, seconds: float, seed: int) -> Unique:
    """Short prompts and long answers in bursts. Decode steps dominate the time to first token."""
    return Unique(
        rate=rate,
        duration_s=seconds,
        seed=seed,
        prompt=Lengths(200.0, 0.5, 2000),
        output=Lengths(400.0, 0.5, 2000),
        cv=4.0,
    )


def worlds(requests: int) -> list[World]:
    """All scenarios, each with about this number of requests."""
    fleet = routed(resized(FLEET, REPLICAS), POLICY)
    loads = (0.3, 0.5, 0.7, 0.9)
    found = [
        World(
            name=make.__name__,
            unit=f"{load:.0%}".replace("%", " %"),
            words="",
            make=make,
            load=load,
            requests=requests,
            fleet=fleet,
        )
        for make in (unique, shared, chat)
        for load in loads
    ]
    at = World(
        name="long prompts",
        unit="70 %",
        words="",
        make=stragglers,
        load=0.7,
        requests=requests,
        fleet=fleet,
    )
    found.append(at)
    found.append(replace(at, name="long answers", make=long_answers))
    found.append(replace(at, name="two speeds", make=unique, fleet=routed(TWO_SPEEDS, POLICY)))
    slow: tuple[Literal["slow"], float, float] = ("slow", 0.4, 0.7)
    found.append(replace(at, name="slow replica", unit="50 %", make=unique, load=0.5, fault=slow))
    return found


def run(seed: int, jobs: int, *, is_quick: bool) -> Found:
    """Simulate all scenarios, up to `jobs` at a time. Raises Refused and Broken."""
    everything = worlds(QUICK if is_quick else REQUESTS)
    rows = run_all([Measured(world, seed, measure) for world in everything], jobs, finished=show)
    moderate = [
        row
        for world, row in zip(everything, rows, strict=True)
        if world.load <= MODERATE and world.fault is None
    ]
    worst_ttft = max(moderate, key=lambda row: row.ttft.mape or 0.0)
    worst_tpot = max(moderate, key=lambda row: row.tpot.mape or 0.0)
    worst_step = max(moderate, key=lambda row: row.step.mape or 0.0)
    return Found(
        "Emulated engines in the simulator",
        f"{everything[0].requests} requests per scenario, {REPLICAS} replicas (two speeds: 8), "
        f"policy {POLICY}; the first {WARM:.0%} are not judged. In `slow replica`, one replica "
        "takes five times as long for 30 % of the time. A request that waits in the engine for "
        "a slot or for KV cache is not predicted. Step: TPOT, predicted when the stream ends from "
        "the load that it had; the rest of the error of TPOT comes from prompts that arrive later.",
        build(rows, columns("scenario")),
        verdicts=[
            within(
                f"TTFT up to {MODERATE:.0%}, worst: {worst_ttft.name}", worst_ttft.ttft, TTFT_GOAL
            ),
            within(
                f"TPOT up to {MODERATE:.0%}, worst: {worst_tpot.name}", worst_tpot.tpot, TPOT_GOAL
            ),
            within(
                f"step up to {MODERATE:.0%}, worst: {worst_step.name}", worst_step.step, TPOT_GOAL
            ),
        ],
        figures={"errors": _plain(rows)},
    )


def _plain(rows: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    return {
        row.name: {
            "ttft_mape": row.ttft.mape,
            "ttft_bias": row.ttft.bias,
            "tpot_mape": row.tpot.mape,
            "tpot_bias": row.tpot.bias,
            "step_mape": row.step.mape,
        }
        for row in rows
    }
