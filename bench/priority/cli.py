"""`hedgerow bench priority`: run the requested parts and print their results.

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
from bench.priority import orders
from router.lab.replay.workers import Broken, Refused

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
    add("--orders", metavar="A,B", help=f"only these (default: {', '.join(orders.ALL)})")
    add("--seed", type=int, default=1, help="of everything random (default: 1)")
    add("--quick", action="store_true", help="seconds, for figures of no worth")
    written.add_arguments(parser)
    for module in PARTS.values():
        import_module(module).add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    founds: list[Found] = []
    try:
        parts = _listed("part", args.part, tuple(PARTS))
        wanted = _listed("order", args.orders, orders.ALL)
        for name in parts:
            run: Callable[[argparse.Namespace, Sequence[str]], Found]
            run = import_module(PARTS[name]).run
            founds.append(run(args, wanted))
    except Broken as err:
        print(err, file=sys.stderr)
        return 1
    except (Refused, ValueError) as err:
        print(err, file=sys.stderr)
        return 2
    written.write(founds, written.plain(founds), args)
    verdicts = [verdict for found in founds for verdict in found.verdicts]
    return 1 if missed(verdicts, is_quick=args.quick) else 0


def _listed(kind: str, words: str | None, known: Sequence[str]) -> Sequence[str]:
    """Return the requested names in the order of `known`. Raises Refused for an unknown name."""
    if words is None:
        return known
    names = [word for word in words.split(",") if word]
    if unknown := [name for name in names if name not in known]:
        raise Refused(f"unknown {kind} {unknown[0]!r}; known: {', '.join(known)}")
    return [name for name in known if name in names]
