"""The part `moderate` of `hedgerow bench sidecar`: runs all setups and returns the results."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from bench.findings.found import Found
from bench.findings.intervals import PAIRS_MIN
from bench.findings.stored import Store, show
from bench.overhead.cli import machine
from bench.overhead.plan import turns
from bench.sidecar.moderate.judge import SETUPS, Row, found
from bench.sidecar.moderate.task import Seen, Task
from bench.sidecar.moderate.traffic import RATES, REPLICAS, Size, spec
from router.core.build import is_compiled
from router.lab.overhead.processes import Placement

_METHOD: Final = (
    "Each request comes to a router at random, also within a conversation; `workers` have one "
    "address. Separate routers tell each other nothing. Requests arrive in a Poisson process (in "
    "chat: conversations), the same for all setups of a seed; the setups are in another order for "
    "each seed. TTFT: from when a request was due to its first content at the client; a request "
    "without a whole answer counts as the slowest. Hits: prompt tokens found in a cache, as the "
    "engines count. CPU: of all processes of the routers, without that of redis-server. Figures "
    "are means over the runs; `over one` is the median of the ratios to one router in the run with "
    "the same seed, and their spread."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no option: this part reads `--runs`, `--rounds` and `--pin` of the other parts."""


def tasks(rounds: int, size: Size, placement: Placement, place: str) -> list[Task]:
    """Return all runs in their order. The runs of all workloads of a setup follow each other."""
    return [
        Task(setup, workload, seed, size, placement, place)
        for seed in range(1, rounds + 1)
        for setup in turns(SETUPS, seed - 1)
        for workload in RATES
    ]


def run(args: argparse.Namespace) -> Found:
    """Measure all setups. Raises OSError, ValueError and the errors of `run_all`."""
    size = Size.quick() if args.quick else Size()
    rounds = args.rounds or (1 if args.quick else PAIRS_MIN)
    placement = Placement.choose(args.pin)
    place = ", ".join(f"{name} {value}" for name, value in machine(placement).items())
    place += ", compiled" if is_compiled() else ", not compiled"
    wanted = tasks(rounds, size, placement, place)
    print(f"measuring {len(wanted)} runs", file=sys.stderr, flush=True)
    # The workloads of a setup run at the same time, each with engines and routers of its own. They
    # use a part of two CPUs, and the whole table takes half of the time.
    results = dict(zip(wanted, Store(args.runs, Seen).run(wanted, len(RATES), show), strict=True))
    rows = [
        Row(
            setup,
            workload,
            [
                seen
                for task, seen in results.items()
                if (task.setup, task.workload) == (setup, workload)
            ],
        )
        for workload in RATES
        for setup in SETUPS
    ]
    rates = " and ".join(f"{name} at {rate:g} requests/s" for name, rate in RATES.items())
    speeds = " and ".join(f"{spec(name).speed:g} ({name})" for name in RATES)
    return found(
        "Several routers at moderate load over HTTP: do they act as one?",
        f"{REPLICAS} emulated replicas, speed {speeds}; {rates}. {rounds} runs of "
        f"{size.measured:g} s, after {size.warm:g} s that are not counted. {_METHOD} {place}.",
        rows,
    )
