"""The HTTP part of `hedgerow bench priority`: its options and its results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.findings.found import Found
from bench.overhead.cli import machine
from bench.priority import traffic
from bench.priority.http.stage import Size, run as run_all
from bench.priority.rows import found
from router.app.emulated_fleet import FleetError
from router.lab.overhead.processes import Placement
from router.lab.replay.workers import Broken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument_group("over HTTP").add_argument(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="router on one CPU, load and engines on another (default: where there are two)",
    )


def run(args: argparse.Namespace, orders: Sequence[str]) -> Found:
    """Measure every order over HTTP. Raises Broken if that is impossible."""
    size = Size.quick() if args.quick else Size()
    placement = Placement.choose(args.pin)
    try:
        rows = run_all(orders, args.seed, size, placement)
    except FleetError as error:
        raise Broken(f"no engines to measure with: {error}") from None
    place = ", ".join(f"{name} {value}" for name, value in machine(placement).items())
    return found(
        "Who goes next over HTTP: every order before emulated engines, kept full by batch and low",
        f"The same fleet and traffic behind real sockets. {traffic.words()} Routed by kv_aware; "
        "the queue as shipped but for its order; a tenant is a user (x-user-id). One order after "
        "the other over fresh engines. TTFT from when a request was due, without a whole answer: "
        f"the slowest. Each row {size.measured:g} s after {size.warm:g} s to warm up. {place}.",
        rows,
    )
