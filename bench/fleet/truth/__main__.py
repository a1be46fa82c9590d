"""`python -m bench.fleet.truth`: compare the simulator with runs over HTTP.

Exit status: 0: the comparison was printed, however large the errors are; 1: Hedgerow or its engines
did not start; 2: an argument is invalid.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from bench.fleet.truth import compare
from bench.fleet.truth.compare import CASES, Plan, compare_all
from policies.contract import policy_names
from router.app.emulated_fleet import FleetError
from router.lab.flags import count
from router.lab.overhead.processes import Placement
from router.lab.overhead.routers import PeerError


def main(words: list[str] | None = None) -> int:
    args = _parser().parse_args(words)
    names = [name for name in args.workload.split(",") if name]
    for kind, given, known in (
        ("workload", names, list(CASES)),
        ("policy", [args.policy] if args.policy else [], policy_names()),
    ):
        if bad := [name for name in given if name not in known]:
            print(f"unknown {kind} {bad[0]!r}; known: {', '.join(known)}", file=sys.stderr)
            return 2
    if not names:
        print("no workload to compare", file=sys.stderr)
        return 2
    cases = [CASES[name] for name in names]
    if args.policy:
        cases = [replace(case, policy=args.policy) for case in cases]
    if args.replicas:
        cases = [replace(case, replicas=args.replicas) for case in cases]
    plan = Plan(repeats=args.repeats, seeds=args.seeds, seed=args.seed)
    try:
        truth = compare_all(cases, plan, Placement.choose(args.pin), _say)
    except (PeerError, FleetError) as error:
        _say(f"nothing to measure with: {error}")
        return 1
    if args.json == "-":
        print(truth.to_json().decode(), end="")
        return 0
    print(compare.markdown(truth) if args.markdown else compare.report_text(truth))
    if args.json:
        Path(args.json).write_bytes(truth.to_json())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.truth", description=__doc__)
    add = parser.add_argument
    add("--workload", metavar="A,B", default=",".join(CASES), help="default: %(default)s")
    add("--policy", metavar="NAME", help="default: the workload's own")
    add("--replicas", type=count, metavar="N", help="default: the workload's own, 2 or 4")
    add("--repeats", type=count, default=3, metavar="N", help="HTTP runs (default: 3)")
    add("--seeds", type=count, default=15, metavar="N", help="simulations (default: 15)")
    add("--seed", type=int, default=1, metavar="N", help="of texts and arrivals (default: 1)")
    add("--json", metavar="FILE", help="also write it as JSON; - for standard output")
    add("--markdown", action="store_true", help="print Markdown tables")
    add(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="router on one CPU, load and engines on another (default: where there are two)",
    )
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
