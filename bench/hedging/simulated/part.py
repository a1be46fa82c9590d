"""The simulated part of `hedgerow bench hedging`: its options and the order of its parts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bench.findings import page as pages
from bench.findings.found import Found
from bench.hedging.simulated import cases, frontier, harm, page, policies
from router.replay import arguments as words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("simulated")
    group.add_argument(
        "--jobs", type=words.count, default=_cpus(), metavar="N", help="runs at once (CPUs)"
    )
    group.add_argument("--cases-only", action="store_true", help="only what goals are set for")
    pages.add_argument(group)


def run(args: argparse.Namespace) -> Sequence[Found]:
    """Return all tables. Raises the errors of `run_all`, and OSError for the page."""
    length = cases.Length.quick() if args.quick else cases.Length()
    common: dict[str, Any] = {"seed": args.seed, "jobs": args.jobs, "length": length}
    _say("simulating what is promised, with hedging and without")
    founds = [cases.run(**common)]
    if args.cases_only:
        return founds
    _say("simulating every policy")
    founds.append(policies.run(**common))
    _say("simulating budgets")
    budgets, by_budget = frontier.run(
        **common, budgets=frontier.QUICK if args.quick else frontier.BUDGETS
    )
    _say("simulating loads")
    loads, by_load = harm.run(**common, loads=harm.QUICK if args.quick else harm.LOADS)
    founds += [budgets, loads]
    pages.save(args, lambda: page.page(founds, by_budget, by_load))
    return founds


def _cpus() -> int:
    usable: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
