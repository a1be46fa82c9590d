"""`hedgerow bench fleet`: send the same requests through several routers, and print the figures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.findings.intervals import PAIRS_MIN
from bench.fleet import contestants, engines, goals, report, rounds, run, scenarios, workloads
from bench.fleet.kept import Kept, KeptError, Plan, commit
from bench.overhead.cli import machine
from bench.overhead.goals import missed
from policies.contract import policy_names
from router.app.emulated_fleet import FleetError
from router.core.build import is_compiled
from router.lab.flags import count
from router.lab.overhead.processes import Orderly, Placement

WANTED = ("kv_aware", "round_robin")
QUICK = ("kv_aware",)


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
    add(
        "--seed",
        type=int,
        default=1,
        help="of the first round's texts, lengths and arrivals; the next round has the next one "
        "(default: 1)",
    )
    add(
        "--rounds",
        type=count,
        metavar="N",
        help=f"times that every contestant is played; goals need {PAIRS_MIN} (default: "
        f"{PAIRS_MIN}, or 1 with --quick)",
    )
    add(
        "--resume",
        metavar="FILE",
        type=Path,
        help="keep the finished rounds in FILE, and play only those that it lacks; it must be of "
        "the same commit, contestants and machine",
    )
    add("--no-oracle", action="store_true", help="leave out the router that sees all engines")
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
    - 2: an argument is invalid.
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
    except KeptError as error:
        _say(str(error))
        return 2
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
    """Raises KeptError if the kept rounds are of another run, FleetError if no engines start."""
    size = workloads.Size.quick() if args.quick else workloads.Size()
    spec = engines.Spec(groups=size.groups)
    placement = Placement.choose(args.pin if args.pin is not None else True)
    subject = contestants.hedgerow(policies[0])
    kinds: list[type[contestants.Ready]] = [
        *(subject, contestants.again(subject)),
        *(contestants.hedgerow(policy) for policy in policies[1:]),
        *(contestants.PEERS[name] for name in peers),
        *([] if args.no_oracle else [contestants.Oracle]),
    ]
    here, at = machine(placement), commit()
    plan = Plan(
        commit=at,
        build="compiled" if is_compiled() else "not compiled",
        machine=str(here),
        contestants=tuple(kind.name for kind in kinds),
        workloads=tuple(names),
        load=args.load,
        seed=args.seed,
        size=f"{size} {spec}",
    )
    kept = Kept(args.resume, plan)

    def prepare(number: int) -> list[run.Workload]:
        return [run.prepare(name, args.load, args.seed + number, size, spec) for name in names]

    count = args.rounds or (1 if args.quick else PAIRS_MIN)
    outcomes: list[scenarios.Outcome] = []
    with Orderly("bench.fleet.load", cpus=placement.others) as load:
        stage = run.Stage(spec, placement, load)
        rounds.play(stage, kinds, prepare, count, kept, _say)
        if not args.no_scenarios:
            _say(f"hotspots of {subject.name}")
            counts = scenarios.Counts.quick() if args.quick else scenarios.Counts()
            outcomes = scenarios.run_all(stage, subject, counts, args.load, args.seed)
    verdicts = goals.judge(kept.rows, outcomes, subject.name, names)
    return report.Report(
        {**here, "commit": at},
        spec.words(),
        subject.name,
        prepare(0),
        kept.rows,
        outcomes,
        verdicts,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
