"""`hedgerow bench promise`: coverage and width of the estimated TTFT's 90 % intervals, by class.

Exit code 0: measured; 1: a run failed, or a goal was missed in a run without `--quick`; 2: a
mistake on the command line.
"""

from __future__ import annotations

import argparse
import sys

from bench.findings import written
from bench.fleet.simulated.cli import usable_cpus
from bench.overhead.goals import missed
from bench.promise import cases
from router.replay import arguments as words
from router.replay.workers import Broken, Refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--case", metavar="NAME", help=f"only this one of {', '.join(cases.NAMES)}")
    add("--seed", type=int, default=1, help="of everything random (default: 1)")
    add("--quick", action="store_true", help="seconds, for figures of no worth")
    add("--jobs", type=words.count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)")
    written.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    try:
        found = cases.run(args.case, args.seed, args.jobs, is_quick=args.quick)
        written.write([found], written.plain([found]), args)
    except (Refused, ValueError) as err:
        print(err, file=sys.stderr)
        return 2
    except OSError as err:
        print(f"{err.filename}: {err.strerror}", file=sys.stderr)
        return 2
    except Broken as err:
        print(err, file=sys.stderr)
        return 1
    return 1 if missed(found.verdicts, is_quick=args.quick) else 0
