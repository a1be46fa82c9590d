"""The flags of `hedgerow replay`. Must never: look into the trace."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from router.emulator.core.core_config import CoreConfig
from router.emulator.core.timing import PROFILES
from router.replay import arguments as words
from router.replay.report.columns import of_runs
from router.replay.report.slo import Slo
from router.simulator.scenario import Polls
from router.traces import FORMATS

PROFILE = "realistic"
KV_TOKENS = 400_000  # of an 8B model with grouped KV heads (128 KiB a token) on 80 GB: 54 GB left
_SLO = Slo()
_POLLS = Polls()
_CORE = CoreConfig()
SLOTS = _CORE.max_num_seqs

_DESCRIPTION = """\
Replay recorded traffic against configurations, policies and fleet sizes, on the router's own
decision code and emulated engines, in virtual time. FILE is a Mooncake, Azure, BurstGPT or
Qwen-Bailian trace, or an access log of hedgerow's own; gzip or plain.

An access log is first simulated as it was, and its second half is printed logged beside simulated.
If the two differ too much, nothing is compared and the exit status is 3.
"""
_EPILOG = """\
examples:
  hedgerow replay access.log --config hedgerow.yaml --calibrate
  hedgerow replay access.log --calibrate --policy kv_aware --policy least_load --html out.html
  hedgerow replay access.log --calibrate --hedging off --hedging adaptive --replicas 8..12
  hedgerow replay access.log --calibrate --routers 4 --replicas 16
  hedgerow replay access.log --policy kv_aware --queue off --queue fifo --queue fair --replicas 8
  hedgerow replay trace.jsonl --replicas 8 --fault slow:0:60:120:10 --fault kill:1:300:400
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `hedgerow replay`."""
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
    add(
        "--format",
        choices=FORMATS,
        metavar="NAME",
        help=f"of the file: {', '.join(FORMATS)} (default: seen from its first line)",
    )
    add("--block-tokens", type=words.count, metavar="N", help="tokens of one of the file's blocks")
    add("--model", metavar="NAME", help="requests of this model only")
    add("--limit", type=words.count, metavar="N", help="the first N requests only")
    add("--until", type=words.positive, metavar="S", help="the first S seconds of the file only")
    add("--speedup", type=words.positive, default=1.0, metavar="X", help="arrivals X times as fast")
    add(
        "--closed-loop",
        action="store_true",
        help="sessions of an access log: the next request comes when the one before is answered, "
        "after the pause that the log has; the comparison with the log is without it",
    )
    add("--seed", type=int, default=1, metavar="N", help="of everything random (default: 1)")


def _add_fleet(group: Any) -> None:
    add = group.add_argument
    add(
        "--replicas",
        type=words.sizes,
        metavar="N|A..B|A..B:STEP|A,B,C",
        help="sizes of a fleet of equal replicas (default: the fleet of the access log; else one "
        "that is estimated to be 70%% busy without any cache)",
    )
    add(
        "--profile",
        choices=sorted(PROFILES),
        metavar="NAME",
        help=f"how fast engines are: {', '.join(sorted(PROFILES))} (default: {PROFILE}, an 8B "
        "model on one A100)",
    )
    model = group.add_mutually_exclusive_group()
    model.add_argument(
        "--timing",
        type=words.timing,
        metavar="a,b,c,d0,d1,d2",
        help="the same as coefficients in ms: prefill a+b*L+c*L^2, decode step d0+d1*B+d2*context",
    )
    model.add_argument(
        "--calibrate",
        action="store_true",
        help="fit them to the first half of the access log; what it cannot tell is as in the "
        "profile",
    )
    for flag, usual in (("--max-num-seqs", SLOTS), ("--kv-tokens", KV_TOKENS)):
        add(
            flag,
            type=words.count,
            metavar="N",
            help=f"of each engine (default: as in the access log; else {usual:,})",
        )
    add(
        "--max-num-batched-tokens",
        type=words.count,
        default=_CORE.max_num_batched_tokens,
        metavar="N",
        help=f"of each engine (default: {_CORE.max_num_batched_tokens:,})",
    )
    add(
        "--fault",
        type=words.fault,
        action="append",
        default=[],
        metavar="KIND:REPLICA:AT:UNTIL[:FACTOR]",
        help="slow (by the factor, 10), freeze or kill a replica, between two seconds; repeat",
    )


def _add_routers(group: Any) -> None:
    add = group.add_argument
    add(
        "--config",
        metavar="FILE",
        help="the router's configuration (default: the shipped one); its replicas are not taken",
    )
    for flag, choice, text in (
        ("--policy", words.policy, "routing policy of all models"),
        ("--queue", words.queue, "order policy of the queue; off: no queue"),
        ("--hedging", words.hedging, "hedging policy; off: no hedging"),
    ):
        add(
            flag,
            type=choice,
            action="append",
            metavar="NAME[:option=value,...]",
            help=f"{text}; repeat to compare, each is combined with the others (default: as "
            "configured)",
        )
    add(
        "--routers",
        type=words.count,
        default=1,
        metavar="N",
        help="in front of the same fleet; the same is run with shared knowledge, to compare",
    )
    add("--shared", action="store_true", help="routers share all they know; only that is run")
    add(
        "--poll-interval",
        type=words.not_negative,
        metavar="S",
        help="between polls; 0: never (default: as configured)",
    )
    for flag, kind, default, metavar, text in (
        ("--poll-delay", words.not_negative, _POLLS.delay_s, "S", "until a poll is known"),
        ("--poll-loss", words.share, _POLLS.loss, "P", "share of polls that bring nothing"),
    ):
        add(
            flag, type=kind, default=default, metavar=metavar, help=f"{text} (default: {default:g})"
        )


def _add_output(group: Any) -> None:
    add = group.add_argument
    for flag, default in (("--ttft-slo", _SLO.ttft_s), ("--tpot-slo", _SLO.tpot_s)):
        add(
            flag,
            type=words.positive,
            default=default * 1e3,
            metavar="MS",
            help=f"what goodput demands (default: {default * 1e3:g})",
        )
    add(
        "--sort",
        metavar="COLUMN",
        choices=_sortable(),
        help="of the table: " + ", ".join(_sortable()),
    )
    add("--html", type=Path, metavar="FILE", help="write a page with tables and plots")
    add("--json", type=Path, metavar="FILE|-", help="write all figures; - for standard output")
    add(
        "--anyway",
        action="store_true",
        help="compare candidates although the simulation is not like the log",
    )
    add("--quiet", action="store_true", help="the table only")
    add("--jobs", type=words.count, default=_cpus(), metavar="N", help="runs at once (CPUs)")


def _sortable() -> Sequence[str]:
    return [column.key for column in of_runs([])]


def _cpus() -> int:
    usable: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1
