"""The simulated part of `hedgerow bench priority`: its options and its results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.findings.command import usable_cpus
from bench.findings.found import Found
from bench.priority import traffic
from bench.priority.rows import found
from bench.priority.simulated.world import Length, run as run_all
from router.lab.flags import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("simulated")
    group.add_argument(
        "--jobs", type=count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)"
    )


def run(args: argparse.Namespace, orders: Sequence[str]) -> Found:
    """Simulate all orders. Raises the errors of `run_all`."""
    length = Length.quick() if args.quick else Length()
    print("simulating every order", file=sys.stderr, flush=True)
    return found(
        "Who goes next: every order on a simulated fleet, kept full by batch and low",
        f"{traffic.words()} Routed by kv_aware; the queue as shipped but for its order. Each row "
        f"{length.seeds} runs of {length.measured_s:g} s after {length.warm_s:g} s that are not "
        "counted, with the same requests. Output: tokens of answers that ended while it was "
        "measured.",
        run_all(orders, args.seed, args.jobs, length),
    )
