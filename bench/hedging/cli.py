"""`hedgerow bench hedging`: run the requested parts and print their results.

Exit code 0: measured; 1: a part could not be measured, or a goal was missed in a run without
`--quick`; 2: an argument is invalid.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from bench.findings import written
from bench.findings.found import Found
from bench.overhead.goals import missed
from router.lab.replay.workers import Broken, Refused

# The module of each part. It has add_arguments(parser) and run(args) -> Sequence[Found].
PARTS = {
    "simulated": "bench.hedging.simulated.part",
    "http": "bench.hedging.http.part",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--part", metavar="A,B", help=f"only these (default: {', '.join(PARTS)})")
    add("--seed", type=int, default=1, help="of everything random (default: 1)")
    add("--quick", action="store_true", help="seconds, for figures of no worth")
    written.add_arguments(parser)
    for module in PARTS.values():
        import_module(module).add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    wanted = args.part.split(",") if args.part else list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        print(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    founds: list[Found] = []
    try:
        for name in wanted:
            run: Callable[[argparse.Namespace], Sequence[Found]]
            run = import_module(PARTS[name]).run
            founds += run(args)
    except Broken as err:
        print(err, file=sys.stderr)
        return 1
    except (Refused, ValueError) as err:
        print(err, file=sys.stderr)
        return 2
    written.write(founds, written.plain(founds), args)
    verdicts = [verdict for found in founds for verdict in found.verdicts]
    return 1 if missed(verdicts, is_quick=args.quick) else 0
