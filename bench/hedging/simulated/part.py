"""The simulated part of `hedgerow bench hedging`: its options and the order of its parts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.findings.command import usable_cpus
from bench.findings.found import Found
from bench.hedging.simulated import frontier, harm, nodes, policies, promises, world
from router.lab.flags import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("simulated")
    group.add_argument(
        "--jobs", type=count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)"
    )
    group.add_argument("--cases-only", action="store_true", help="only what goals are set for")
    group.add_argument("--case", metavar="A,B", help="only these cases")
    group.add_argument("--seeds", type=count, metavar="N", help="seeds of each case (10)")
    group.add_argument(
        "--store",
        metavar="FILE",
        type=Path,
        help="keep the figures of finished runs, and use those that it has for the same code",
    )


def run(args: argparse.Namespace) -> Sequence[Found]:
    """Return all tables.

    Raises the errors of `run_all`, OSError if a file cannot be read or written, and ValueError for
    an unknown case or for a file of runs with other content.
    """
    length = nodes.Length.quick() if args.quick else nodes.Length()
    if args.seeds is not None:
        length = replace(length, seeds=args.seeds)
    common: dict[str, Any] = {"seed": args.seed, "jobs": args.jobs}
    _say("simulating what is promised, with hedging and without")
    named = _named(args.case)
    founds = [promises.run(**common, length=length, path=args.store, cases=named, say=_say)]
    if args.cases_only:
        return founds
    common["extent"] = world.Extent.quick() if args.quick else world.Extent()
    _say("simulating every policy")
    founds.append(policies.run(**common))
    _say("simulating budgets")
    budgets, _ = frontier.run(**common, budgets=frontier.QUICK if args.quick else frontier.BUDGETS)
    _say("simulating loads")
    loads, _ = harm.run(**common, loads=harm.QUICK if args.quick else harm.LOADS)
    founds += [budgets, loads]
    return founds


def _named(names: str | None) -> Sequence[nodes.Case]:
    if names is None:
        return nodes.CASES
    known = {case.name: case for case in nodes.CASES}
    unknown = [name for name in names.split(",") if name not in known]
    if unknown:
        raise ValueError(f"unknown case {unknown[0]!r}; known: {', '.join(known)}")
    return [known[name] for name in names.split(",")]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
