"""The flags of `hedgerow replay`. Must never: read the trace."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.flags import count, not_negative, positive, share
from router.lab.replay import arguments as parse
from router.lab.replay.report.columns import of_runs
from router.lab.replay.report.slo import Slo
from router.lab.simulator.scenario import Polls

PROFILE = "realistic"
KV_TOKENS = 400_000  # for an 8B model with 128 KiB of KV per token and 54 of 80 GB free
_SLO = Slo()
_POLLS = Polls()
_CORE = CoreConfig()
SLOTS = _CORE.max_num_seqs

_DESCRIPTION = """\
Simulate recorded traffic with different configurations, policies and fleet sizes. The simulation
runs the router's own decision code with emulated engines in virtual time. FILE is
Hedgerow's own access log, gzip or plain.

The log is first simulated with its own fleet and configuration. A table compares the second
half of the log with this simulation. If the two differ too much, no candidates are compared and the
exit status is 3.
"""
_EPILOG = """\
examples:
  hedgerow replay access.log --config hedgerow.yaml --calibrate
  hedgerow replay access.log --calibrate --policy kv_aware --policy least_load --html out.html
  hedgerow replay access.log --calibrate --hedging off --hedging adaptive --replicas 8..12
  hedgerow replay access.log --calibrate --routers 4 --replicas 16
  hedgerow replay access.log --policy kv_aware --queue off --queue fifo --queue fair --replicas 8
  hedgerow replay access.log --replicas 8 --fault slow:0:60:120:10 --fault kill:1:300:400
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `hedgerow replay` to its parser."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", metavar="FILE")
    _add_traffic(parser.add_argument_group("traffic"))
    _add_fleet(parser.add_argument_group("fleet"))
    _add_routers(parser.add_argument_group("routers"))
    _add_output(parser.add_argument_group("output"))


def _add_traffic(group: Any) -> None:
    add = group.add_argument
    add("--block-tokens", type=count, metavar="N", help="tokens per block of the file")
    add("--model", metavar="NAME", help="only requests of this model")
    add("--limit", type=count, metavar="N", help="only the first N requests")
    add("--until", type=positive, metavar="S", help="only the first S seconds of the file")
    add("--speedup", type=positive, default=1.0, metavar="X", help="arrivals X times as fast")
    add(
        "--closed-loop",
        action="store_true",
        help="the next request of a session arrives after the previous answer, "
        "with the think time of the log; the comparison with the log does not use this",
    )
    add("--seed", type=int, default=1, metavar="N", help="random seed (default: 1)")


def _add_fleet(group: Any) -> None:
    add = group.add_argument
    add(
        "--replicas",
        type=parse.sizes,
        metavar="N|A..B|A..B:STEP|A,B,C",
        help="sizes of a fleet of identical replicas (default: the fleet of the log)",
    )
    add(
        "--profile",
        choices=sorted(PROFILES),
        metavar="NAME",
        help=f"timing of the engines: {', '.join(sorted(PROFILES))} (default: {PROFILE}, an 8B "
        "model on one A100)",
    )
    model = group.add_mutually_exclusive_group()
    model.add_argument(
        "--timing",
        type=parse.timing,
        metavar="a,b,c,d0,d1,d2",
        help="timing as coefficients in ms: prefill a+b*L+c*L^2, decode step d0+d1*B+d2*context",
    )
    model.add_argument(
        "--calibrate",
        action="store_true",
        help="fit the coefficients to the first half of the access log; ratios that the log does "
        "not determine are those of the profile",
    )
    for flag, usual, what in (
        ("--max-num-seqs", SLOTS, "sequences that one engine runs at once"),
        ("--kv-tokens", KV_TOKENS, "KV cache of one engine, in tokens"),
    ):
        add(
            flag,
            type=count,
            metavar="N",
            help=f"{what} (default: as in the access log; else {usual:,})",
        )
    add(
        "--max-num-batched-tokens",
        type=count,
        default=_CORE.max_num_batched_tokens,
        metavar="N",
        help=f"tokens in one step of an engine (default: {_CORE.max_num_batched_tokens:,})",
    )
    add(
        "--fault",
        type=parse.fault,
        action="append",
        default=[],
        metavar="KIND:REPLICA:AT:UNTIL[:FACTOR]",
        help="slow (by the factor; default 10), freeze or kill a replica from the second AT to the "
        "second UNTIL; may be repeated",
    )


def _add_routers(group: Any) -> None:
    add = group.add_argument
    add(
        "--config",
        metavar="FILE",
        help="the router's configuration (default: the built-in defaults); its list of replicas is "
        "not used as the fleet",
    )
    for flag, choice, text in (
        ("--policy", parse.policy, "routing policy of all models"),
        ("--queue", parse.queue, "order policy of the queue; off: no queue"),
        ("--hedging", parse.hedging, "hedging policy; off: no hedging"),
    ):
        add(
            flag,
            type=choice,
            action="append",
            metavar="NAME[:option=value,...]",
            help=f"{text}; may be repeated to compare; all combinations are simulated (default: as "
            "configured)",
        )
    add(
        "--routers",
        type=count,
        default=1,
        metavar="N",
        help="number of routers of the fleet; each run is repeated with shared state, to compare",
    )
    add("--shared", action="store_true", help="simulate only routers with shared state")
    add(
        "--poll-interval",
        type=not_negative,
        metavar="S",
        help="seconds between polls; 0: never (default: as configured)",
    )
    for flag, kind, default, metavar, text in (
        ("--poll-delay", not_negative, _POLLS.delay_s, "S", "seconds that a poll takes"),
        ("--poll-loss", share, _POLLS.loss, "P", "share of polls that fail, 0 to 1"),
    ):
        add(
            flag, type=kind, default=default, metavar=metavar, help=f"{text} (default: {default:g})"
        )


def _add_output(group: Any) -> None:
    add = group.add_argument
    for flag, default, what in (
        ("--ttft-slo", _SLO.ttft_s, "time to first token"),
        ("--tpot-slo", _SLO.tpot_s, "time per output token"),
    ):
        add(
            flag,
            type=positive,
            default=default * 1e3,
            metavar="MS",
            help=f"SLO for the {what}, used for goodput (default: {default * 1e3:g})",
        )
    add(
        "--sort",
        metavar="COLUMN",
        choices=_sortable(),
        help="sort the table by: " + ", ".join(_sortable()),
    )
    add("--html", type=Path, metavar="FILE", help="write an HTML page with tables and plots")
    add("--json", type=Path, metavar="FILE|-", help="write all results as JSON; -: standard output")
    add(
        "--anyway",
        action="store_true",
        help="compare candidates even if the simulation differs too much from the log",
    )
    add("--quiet", action="store_true", help="print the table only")
    add(
        "--jobs",
        type=count,
        default=_cpus(),
        metavar="N",
        help="runs in parallel (default: the number of CPUs)",
    )


def _sortable() -> Sequence[str]:
    return [column.key for column in of_runs([])]


def _cpus() -> int:
    usable: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1
