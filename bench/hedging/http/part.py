"""The HTTP part of `hedgerow bench hedging`: its options and its results."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

from bench.findings.found import Found
from bench.hedging.http import contestants
from bench.hedging.http.judge import found
from bench.hedging.http.stage import Options, run as run_all
from bench.hedging.http.traffic import PEERS, SCENARIOS, Size
from router.app.emulated_fleet import FleetError
from router.lab.replay.workers import Broken, Refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("over HTTP").add_argument
    add("--scenario", metavar="A,B", help=f"only these (known: {', '.join(SCENARIOS)})")
    add("--contestants", metavar="A,B", help=f"only these (known: {', '.join(contestants.KINDS)})")
    add(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="router on one CPU, load and engines on another (default: where there are two)",
    )


def run(args: argparse.Namespace) -> Sequence[Found]:
    """Run the bench. Raises Refused for an unknown name, Broken if Hedgerow does not run."""
    options = Options(
        _listed("scenario", args.scenario, SCENARIOS) or tuple(SCENARIOS),
        _listed("contestant", args.contestants, contestants.KINDS),
        Size.quick() if args.quick else Size(),
        args.seed,
        args.pin,
    )
    try:
        results = run_all(options)
    except FleetError as error:
        raise Broken(f"no engines to measure with: {error}") from None
    for row in results.rows:
        if row.absent and row.key not in PEERS:
            raise Broken(f"{row.name} could not be measured: {row.absent}")
    return [found(results)]


def _listed(kind: str, words: str | None, known: Collection[str]) -> tuple[str, ...] | None:
    if words is None:
        return None
    names = tuple(word for word in words.split(",") if word)
    if unknown := [name for name in names if name not in known]:
        raise Refused(f"unknown {kind} {unknown[0]!r}; known: {', '.join(known)}")
    return names
