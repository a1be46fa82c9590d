"""`hedgerow bench plan`: compare the GPU-hours of a plan, of rules, and of a static fleet.

With `--runs FILE`, finished runs are kept, so that an interrupted bench can be continued.

Exit code 0: measured; 1: it could not be measured, or a goal was missed in a run without `--quick`;
2: an argument or an input file is invalid.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.findings.command import measured, usable_cpus
from bench.findings.found import Found, add_arguments as add_output
from bench.findings.intervals import PAIRS_MIN
from bench.findings.stored import Store, show
from bench.plan.contestants import LEADS_S
from bench.plan.fleet import bursts
from bench.plan.found import REGIONS_CASE, WEEK_CASE, Case, Run, Task, found
from router.lab.flags import count
from router.lab.replay.workers import Refused

SEEDS, QUICK = PAIRS_MIN, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--azure", metavar="FILE", help="also with the bursts of AzureLLMInferenceTrace_conv.csv")
    add("--mooncake", metavar="FILE", help="also with those of Mooncake's conversation_trace.jsonl")
    add("--case", metavar="NAME", help=f"only this one, such as {WEEK_CASE.name!r}")
    add("--seeds", type=count, default=SEEDS, metavar="N", help=f"default: {SEEDS}")
    add("--runs", metavar="FILE", type=Path, help="keep finished runs here, to continue later")
    add("--quick", action="store_true", help="one seed and lead time, for figures of no worth")
    add("--jobs", type=count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)")
    add_output(parser)


def main(args: argparse.Namespace) -> int:
    return measured(lambda: [run(args)], args)


def run(args: argparse.Namespace) -> Found:
    """Simulate the demands. Raises TraceError, OSError, and the errors of `Store.run`."""
    cases = [WEEK_CASE]
    for name, path in (("azure", args.azure), ("mooncake", args.mooncake)):
        if path:
            cases.append(Case(name, bursts(name, path)))
    cases.append(REGIONS_CASE)
    chosen = [case for case in cases if args.case in (None, case.name)]
    if not chosen:
        raise Refused(
            f"unknown case {args.case!r}; known: {', '.join(repr(case.name) for case in cases)}"
        )
    seeds = range(1, 1 + (QUICK if args.quick else args.seeds))
    leads = LEADS_S[:1] if args.quick else LEADS_S
    tasks = [Task(case, seed, leads) for case in chosen for seed in seeds]
    return found(Store(args.runs, Run).run(tasks, args.jobs, show))
