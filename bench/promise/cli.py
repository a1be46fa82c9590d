"""`hedgerow bench promise`: simulate coverage and width of the intervals of estimated TTFTs.

Exit code 0: measured; 1: a run failed, or a goal was missed in a run without `--quick`; 2: an
argument is invalid.
"""

from __future__ import annotations

import argparse

from bench.findings import written
from bench.findings.command import measured, usable_cpus
from bench.promise import cases
from router.replay import arguments as words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    names = ", ".join(cases.NAMES).replace("%", "%%")  # argparse formats help texts with `%`
    add("--case", metavar="NAME", help=f"only this one of {names}")
    add("--seed", type=int, default=1, help="of everything random (default: 1)")
    add("--quick", action="store_true", help="seconds, for figures of no worth")
    add("--jobs", type=words.count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)")
    written.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    return measured(lambda: [cases.run(args.case, args.seed, args.jobs, is_quick=args.quick)], args)
