"""`hedgerow bench promise`: simulate coverage and width of the intervals of estimated TTFTs.

With `--runs FILE`, finished runs are kept, so that an interrupted bench can be continued.

Exit code 0: measured; 1: a run failed, or a goal was missed in a run without `--quick`; 2: an
argument is invalid.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from bench.findings import found
from bench.findings.command import measured, usable_cpus
from bench.findings.intervals import PAIRS_MIN
from bench.promise import cases
from router.lab.flags import count

SEEDS: Final = PAIRS_MIN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    names = ", ".join(cases.NAMES).replace("%", "%%")  # argparse formats help texts with `%`
    add("--case", metavar="NAME", help=f"only this one of {names}")
    add("--seed", type=int, default=1, help="the first seed (default: 1)")
    add("--seeds", type=count, default=SEEDS, metavar="N", help=f"default: {SEEDS}")
    add("--runs", metavar="FILE", type=Path, help="keep finished runs here, to continue later")
    add("--quick", action="store_true", help="seconds, for figures of no worth")
    add("--jobs", type=count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)")
    found.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    seeds = range(args.seed, args.seed + (1 if args.quick else args.seeds))
    return measured(
        lambda: [cases.run(args.case, seeds, args.jobs, args.runs, is_quick=args.quick)], args
    )
