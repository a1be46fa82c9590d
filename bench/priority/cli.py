"""`hedgerow bench priority`: run the requested parts and print their results.

Exit code 0: measured; 1: a part could not be measured, or a goal was missed in a run without
`--quick`; 2: an argument is invalid.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from bench.findings import found
from bench.findings.command import listed, measured
from bench.findings.found import Found
from bench.priority import rows

# The module of each part. It has add_arguments(parser) and run(args, orders) -> Found.
PARTS = {
    "goals": "bench.priority.simulated.goals",
    "simulated": "bench.priority.simulated.part",
    "deadlines": "bench.priority.simulated.deadlines",
    "http": "bench.priority.http.part",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--part", metavar="A,B", help=f"only these (default: {', '.join(PARTS)})")
    add("--orders", metavar="A,B", help=f"only these (default: {', '.join(rows.ALL)})")
    add("--seed", type=int, default=1, help="of everything random (default: 1)")
    add("--quick", action="store_true", help="seconds, for figures of no worth")
    found.add_arguments(parser)
    for module in PARTS.values():
        import_module(module).add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    def run() -> list[Found]:
        parts = listed("part", args.part, list(PARTS))
        wanted = listed("order", args.orders, rows.ALL)
        return [import_module(PARTS[name]).run(args, wanted) for name in parts]

    return measured(run, args)
