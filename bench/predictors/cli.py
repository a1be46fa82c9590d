"""`hedgerow bench predictors`: the error of predicted TTFT and TPOT, on several data.

Exit code 0: measured; 1: a part could not run, or a goal was missed in a run without `--quick`; 2:
an argument or an input file is invalid.
"""

from __future__ import annotations

import argparse

from bench.findings import found
from bench.findings.command import measured, usable_cpus
from bench.findings.found import Found
from bench.predictors import logged, simulated, timings
from router.lab.flags import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--timings", metavar="FILE", help="measured timings of engines as CSV (perf_model.csv)")
    add("--log", metavar="FILE", help="an access log of this router, of real engines")
    add("--no-simulated", action="store_true", help="only the files, no simulated engines")
    add("--seed", type=int, default=1, help="of everything random (default: 1)")
    add("--quick", action="store_true", help="seconds, for figures of no worth")
    add("--jobs", type=count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)")
    found.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    return measured(lambda: run(args), args)


def run(args: argparse.Namespace) -> list[Found]:
    """Return one table for each data source. Raises ValueError, OSError and `run_all`'s errors."""
    founds = []
    if args.timings:
        founds.append(timings.run(args.timings, args.seed))
    if args.log:
        founds.append(logged.run(args.log))
    if not args.no_simulated:
        founds.append(simulated.run(args.seed, args.jobs, is_quick=args.quick))
    return founds
