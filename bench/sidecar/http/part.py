"""The HTTP part of `hedgerow bench sidecar`: its options and its results."""

from __future__ import annotations

import argparse
import sys

from bench.findings.found import Found
from bench.overhead.cli import machine
from bench.priority import traffic
from bench.priority.http.stage import Size
from bench.sidecar.figures import HTTP, Figures, Row, found, setups
from bench.sidecar.http.stage import measure
from router.app.emulated_fleet import FleetError
from router.lab.flags import count
from router.lab.overhead.processes import Orderly, Placement
from router.lab.overhead.routers import PeerError
from router.lab.replay.workers import Broken

ROUNDS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("over HTTP").add_argument
    add("--rounds", type=count, metavar="N", help=f"default: {ROUNDS}, or 1 with --quick")
    add(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="routers on one CPU, load and engines on another (default: where there are two)",
    )


def run(args: argparse.Namespace) -> Found:
    """Measure all setups in each round. Raises Broken if that is impossible."""
    size = Size.quick() if args.quick else Size()
    rounds = args.rounds or (1 if args.quick else ROUNDS)
    placement = Placement.choose(args.pin)
    wanted = setups(HTTP)
    runs: list[list[Figures]] = [[] for _ in wanted]
    with Orderly("bench.sidecar.http.load", cpus=placement.others) as load:
        for seed in range(1, rounds + 1):
            for setup, seen in zip(wanted, runs, strict=True):
                print(
                    f"round {seed} of {rounds}: {setup.routers} routers, {setup.knowledge}",
                    file=sys.stderr,
                    flush=True,
                )
                try:
                    seen.append(measure(setup, seed, size, placement, load))
                except (PeerError, FleetError) as error:
                    raise Broken(
                        f"{setup.routers} routers could not be measured: {error}"
                    ) from None
    place = ", ".join(f"{name} {value}" for name, value in machine(placement).items())
    return found(
        "Several routers on one fleet over HTTP",
        f"{traffic.words()} {rounds} rounds of {size.measured:g} s, after {size.warm:g} s that are "
        f"not counted, with new engines, new routers and the same requests for every row. {place}.",
        [Row(setup, seen) for setup, seen in zip(wanted, runs, strict=True)],
    )
