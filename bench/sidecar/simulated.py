"""The simulated part: each router has its own drivers, queue, polls and view of the fleet.

Must never give a router anything that it would not see in production.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from bench.findings.command import usable_cpus
from bench.findings.found import Found
from bench.findings.stored import Store, show
from bench.priority import traffic
from bench.priority.simulated.world import Crowd, fleet_scenario
from bench.sidecar.figures import SIMULATED, SOME, Counted, Figures, Row, Setup, found, setups
from router.config.varied import varied
from router.core.errors import Reason
from router.lab.flags import count
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Channel, Scenario
from router.lab.simulator.simulation import simulate


@dataclass(frozen=True, slots=True)
class Length:
    """Lengths of a run in seconds, and the number of runs with different seeds."""

    warm_s: float = 60.0
    measured_s: float = 60.0
    seeds: int = 5

    @classmethod
    def quick(cls) -> Length:
        return cls(5.0, 10.0, 1)


@dataclass(frozen=True, slots=True)
class Task:
    """One simulation of a setup."""

    setup: Setup
    seed: int
    length: Length

    @property
    def policy(self) -> str:
        return self.setup.policy

    @property
    def scenario(self) -> Scenario:
        setup = self.setup
        scenario = fleet_scenario(traffic.SMALL, varied(**setup.settings()), self.seed)
        channel = Channel() if setup.shares else None
        return replace(
            scenario, routers=setup.routers, routers_per_tenant=setup.pods, channel=channel
        )

    def run(self, line: TextIO | None = None) -> Figures:
        """Simulate and return the figures; `line` is not used. Raises the errors of `simulate`."""
        begin = self.length.warm_s
        seen = _Seen(Counted(begin, begin + self.length.measured_s))
        simulate(self.scenario, Crowd(self.seed, seen.counted.end), seen)
        return seen.counted.figures(seen.cached / max(seen.prompts, 1))


class _Seen:
    """Counts the outcomes of a simulation."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.prompts = 0
        self.cached = 0

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        is_ok = outcome.reason is Reason.OK
        self.counted.add(
            arrival.priority,
            arrival.tenant,
            arrival.at,
            outcome.ended,
            outcome.ttft_s if is_ok else None,
            arrival.prompt_tokens,
            arrival.output_tokens,
        )
        if is_ok and self.counted.begin <= outcome.ended < self.counted.end:
            self.prompts += arrival.prompt_tokens
            self.cached += outcome.cached_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("simulated").add_argument
    add("--jobs", type=count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)")
    add("--runs", type=Path, metavar="FILE", help="keep finished runs in FILE, and reuse them")


def run(args: argparse.Namespace) -> Found:
    """Simulate all setups. Raises OSError, ValueError and the errors of `run_all`."""
    length = Length.quick() if args.quick else Length()
    wanted = setups(SIMULATED, SOME)
    tasks = [Task(one, seed, length) for one in wanted for seed in range(1, length.seeds + 1)]
    print(f"simulating {len(tasks)} runs", file=sys.stderr, flush=True)
    results = Store(args.runs, Figures).run(tasks, args.jobs, show)
    rows = [
        Row(one, results[number * length.seeds : (number + 1) * length.seeds])
        for number, one in enumerate(wanted)
    ]
    return found(
        "Several routers on one simulated fleet",
        f"{traffic.words()} {length.seeds} runs of {length.measured_s:g} s, after "
        f"{length.warm_s:g} s that are not counted, with the same requests for every row.",
        rows,
    )
