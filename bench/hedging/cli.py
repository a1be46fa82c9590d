"""`hedgerow bench hedging`: run the requested parts and print their results.

Exit code 0: measured; 1: a part could not be measured, or a goal was missed in a run without
`--quick`; 2: an argument is invalid.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from bench.findings import found
from bench.findings.command import listed, measured
from bench.findings.found import Found

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
    found.add_arguments(parser)
    for module in PARTS.values():
        import_module(module).add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    def run() -> list[Found]:
        parts = listed("part", args.part, list(PARTS))
        return [found for name in parts for found in import_module(PARTS[name]).run(args)]

    return measured(run, args)
