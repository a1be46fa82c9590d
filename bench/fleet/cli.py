"""`hedgerow bench fleet`: run workloads against routers and print the tables."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.fleet import contestants, engines, goals, report, run, scenarios, workloads
from bench.overhead.cli import machine
from bench.overhead.goals import missed
from bench.overhead.processes import Orderly, Placement
from policies.contract import policy_names
from router.emulator.spawn import FleetError

WANTED = ("kv_aware", "prefix_affinity", "least_load", "round_robin")
QUICK = ("kv_aware", "least_load")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--policy",
        metavar="A,B",
        help="Hedgerow's policies, the first being the one that is judged (default: those of "
        f"{', '.join(WANTED)} that exist)",
    )
    add(
        "--peers",
        metavar="A,B",
        help=f"only these peers, in order; empty: none (known: {', '.join(contestants.PEERS)})",
    )
    add(
        "--workload",
        metavar="A,B",
        default=",".join(workloads.WORKLOADS),
        help="default: %(default)s",
    )
    add(
        "--load",
        type=_share,
        default=0.7,
        help="share of the rate at which the fleet saturates without cache hits (default: 0.7)",
    )
    add("--seed", type=int, default=1, help="of texts, lengths and arrivals (default: 1)")
    add("--no-scenarios", action="store_true", help="leave the four hotspot scenarios out")
    add("--json", metavar="FILE", help="also write the results as JSON; - for standard output")
    add("--markdown", action="store_true", help="print Markdown tables")
    add("--quick", action="store_true", help="short runs that show little; within two minutes")
    add(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="router on one CPU, load and engines on another (default: where there are two)",
    )


def _share(word: str) -> float:
    value = float(word)
    if not 0 < value < 10:
        raise argparse.ArgumentTypeError("must be above 0; 1 is saturation")
    return value


def main(args: argparse.Namespace) -> int:
    """Return the exit code.

    - 0: measured;
    - 1: Hedgerow could not be measured, or a goal was missed in a run without `--quick`;
    - 2: a mistake on the command line.
    """
    policies, peers = _policies(args), _listed(args.peers, contestants.PEERS)
    names = _listed(args.workload, workloads.WORKLOADS)
    if problem := _unknown(policies, peers, names):
        print(problem, file=sys.stderr)
        return 2
    try:
        whole = measure(args, policies, peers, names)
    except FleetError as error:
        _say(f"no engines to measure with: {error}")
        return 1
    if args.json == "-":
        print(json.dumps(whole.as_json(), indent=1))
    else:
        print(report.markdown(whole) if args.markdown else report.text(whole))
        if args.json:
            Path(args.json).write_text(json.dumps(whole.as_json(), indent=1) + "\n")
    if any(row.absent and row.name.startswith("hedgerow ") for row in whole.rows):
        return 1
    return 1 if missed(whole.verdicts, is_quick=args.quick) else 0


def _policies(args: argparse.Namespace) -> list[str]:
    if args.policy:
        return [str(name) for name in args.policy.split(",")]
    known = policy_names()
    wanted = QUICK if args.quick else WANTED
    return [name for name in wanted if name in known] or known[:1]


def _listed(words: str | None, known: dict[str, object] | dict[str, type]) -> list[str]:
    return list(known) if words is None else [word for word in words.split(",") if word]


def _unknown(policies: list[str], peers: list[str], names: list[str]) -> str:
    for kind, given, known in (
        ("policy", policies, policy_names()),
        ("peer", peers, list(contestants.PEERS)),
        ("workload", names, list(workloads.WORKLOADS)),
    ):
        if bad := [name for name in given if name not in known]:
            return f"unknown {kind} {bad[0]!r}; known: {', '.join(known)}"
    return ""


def measure(
    args: argparse.Namespace, policies: list[str], peers: list[str], names: list[str]
) -> report.Report:
    size = workloads.Size.quick() if args.quick else workloads.Size()
    spec = engines.Spec(groups=size.groups)
    placement = Placement.choose(args.pin if args.pin is not None else True)
    kinds = [contestants.hedgerow(policy) for policy in policies]
    prepared = [run.prepare(name, args.load, args.seed, size, spec) for name in names]
    rows: list[run.Row] = []
    outcomes: list[scenarios.Outcome] = []
    with Orderly("bench.fleet.load", cpus=placement.others) as load:
        stage = run.Stage(spec, placement, load)
        for workload in prepared:
            for kind in [*kinds, *(contestants.PEERS[name] for name in peers)]:
                _say(f"measuring {kind.name}, {workload.name}")
                rows.append(stage.measure(kind, workload))
                if rows[-1].absent:
                    _say(f"  absent: {rows[-1].absent}")
        if kinds and not args.no_scenarios:
            _say(f"measuring hotspots of {kinds[0].name}")
            counts = scenarios.Counts.quick() if args.quick else scenarios.Counts()
            outcomes = scenarios.run_all(stage, kinds[0], counts, args.load, args.seed)
    subject = kinds[0].name if kinds else ""
    verdicts = goals.judge(rows, outcomes, subject, names, peers)
    return report.Report(machine(placement), spec.words(), prepared, rows, outcomes, verdicts)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
