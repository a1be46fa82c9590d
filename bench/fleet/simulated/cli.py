"""`hedgerow bench simulated PART`: run one part and print its table.

Exit code 0: done; 1: the part could not run, or a goal was missed in a run without `--quick`; 2: an
argument is invalid.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from bench.findings import found
from bench.findings.command import measured, mistake, usable_cpus
from bench.findings.found import Found
from bench.fleet.simulated import ladder, loads, matrix, oracle, speed
from policies.contract import policy_names
from router.lab.flags import count, positive

QUICK_LOADS = (50, 110)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for name, help_text, run, add in (
        ("ladder", "Mooncake's ladder on its own trace", _ladder, _add_ladder),
        ("loads", "llm-d's workload from idle to overload", _loads, _add_policies),
        ("policies", "every policy in every scenario", _matrix, _add_policies),
        ("speed", "of the simulator itself", _speed, _add_speed),
    ):
        part = parts.add_parser(name, help=help_text, description=help_text)
        part.set_defaults(part=run)
        add(part)
        part.add_argument("--seed", type=int, default=1, help="of everything random (default: 1)")
        part.add_argument("--quick", action="store_true", help="seconds, for figures of no worth")
        found.add_arguments(part)


def _add_ladder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace", metavar="FILE", required=True, help="Mooncake's conversation_trace.jsonl"
    )
    parser.add_argument(
        "--speedup",
        type=positive,
        metavar="X",
        help="of the trace (default: looked for, so that random choice takes the paper's time)",
    )
    _add_policies(parser)


def _add_policies(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="A,B", help="only these (default: all)")
    parser.add_argument(
        "--jobs", type=count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)"
    )


def _add_speed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="NAME", help=f"default: {matrix.DEFAULT}")
    for flag, default in (("--requests", speed.REQUESTS), ("--replicas", speed.REPLICAS)):
        parser.add_argument(
            flag, type=count, default=default, metavar="N", help=f"default: {default:,}"
        )


def main(args: argparse.Namespace) -> int:
    unknown = [name for name in _policies(args) if name not in _contestants()]
    if unknown:
        known = ", ".join(_contestants())
        return mistake(f"unknown policy {unknown[0]!r}; known: {known}")
    run: Callable[[argparse.Namespace], Found] = args.part
    return measured(lambda: [run(args)], args, lambda founds: founds[0].as_json())


def _ladder(args: argparse.Namespace) -> Found:
    return ladder.run(
        args.trace,
        _policies(args),
        seed=args.seed,
        jobs=args.jobs,
        speedup=args.speedup,
        limit=600 if args.quick else None,
        precision=0.5 if args.quick else 0.01,
    )


def _loads(args: argparse.Namespace) -> Found:
    quick: dict[str, Any] = {
        "length": loads.Length.quick(),
        "loads": QUICK_LOADS,
        "precision": 0.5,
    }
    found, _ = loads.run(
        _policies(args), seed=args.seed, jobs=args.jobs, **quick if args.quick else {}
    )
    return found


def _matrix(args: argparse.Namespace) -> Found:
    requests = matrix.QUICK if args.quick else matrix.REQUESTS
    return matrix.run(_policies(args), seed=args.seed, jobs=args.jobs, requests=requests)


def _speed(args: argparse.Namespace) -> Found:
    return speed.run(
        args.policy or matrix.DEFAULT,
        seed=args.seed,
        requests=min(args.requests, 1000) if args.quick else args.requests,
        replicas=min(args.replicas, 20) if args.quick else args.replicas,
    )


def _policies(args: argparse.Namespace) -> list[str]:
    return args.policy.split(",") if args.policy else _contestants()


def _contestants() -> list[str]:
    return [*policy_names(), oracle.NAME]
