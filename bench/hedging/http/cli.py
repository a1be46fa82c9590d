"""Chooses scenarios and contestants, runs them, prints the tables; others begin at `run`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.fleet import engines
from bench.hedging.http import contestants, goals, report
from bench.hedging.http.scenarios import HEALTHY, SCENARIOS, Scenario
from bench.hedging.http.stage import Row, Stage
from bench.hedging.http.traffic import Size
from bench.overhead.cli import machine
from bench.overhead.processes import Orderly, Placement
from router.emulator.spawn import FleetError

PEERS = ("envoy", "haproxy")


@dataclass(frozen=True, slots=True)
class Options:
    """What to run. `contestants` narrows those of every scenario; None: all of them."""

    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    contestants: tuple[str, ...] | None = None
    size: Size = field(default_factory=Size)
    seed: int = 1
    pin: bool = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--scenario", metavar="A,B", help=f"only these (known: {', '.join(SCENARIOS)})")
    add("--contestants", metavar="A,B", help=f"only these (known: {', '.join(contestants.KINDS)})")
    add("--seed", type=int, default=1, help="of texts, lengths and arrivals (default: 1)")
    add("--json", metavar="FILE", help="also write the results as JSON; - for standard output")
    add("--markdown", action="store_true", help="print Markdown tables")
    add("--quick", action="store_true", help="short runs that show little")
    add(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="router on one CPU, load and engines on another (default: where there are two)",
    )


def main(args: argparse.Namespace) -> int:
    """Exit code 0: measured (goals missed are figures, no failure); 1: Hedgerow could not be
    measured; 2: a mistake on the command line."""
    options = Options(
        _listed(args.scenario) or tuple(SCENARIOS),
        _listed(args.contestants),
        Size.quick() if args.quick else Size(),
        args.seed,
        args.pin,
    )
    known = {"scenario": (options.scenarios, SCENARIOS)}
    known["contestant"] = (options.contestants or (), contestants.KINDS)
    for kind, (given, all_) in known.items():
        if bad := [name for name in given if name not in all_]:
            print(f"unknown {kind} {bad[0]!r}; known: {', '.join(all_)}", file=sys.stderr)
            return 2
    try:
        whole = run(options)
    except FleetError as error:
        _say(f"no engines to measure with: {error}")
        return 1
    if args.json == "-":
        print(json.dumps(whole.as_json(), indent=1))
    else:
        print(report.markdown(whole) if args.markdown else report.text(whole))
        if args.json:
            Path(args.json).write_text(json.dumps(whole.as_json(), indent=1) + "\n")
    return 1 if any(row.absent and row.key not in PEERS for row in whole.rows) else 0


def run(options: Options) -> report.Report:
    """Raises FleetError when no engines could be started."""
    placement = Placement.choose(options.pin)
    spec = engines.Spec()
    wanted = list(_wanted(options))
    rows: list[Row] = []
    after_s = None
    with Orderly("bench.hedging.http.load", cpus=placement.others) as load:
        stage = Stage(spec, options.size, options.seed, placement, load)
        if any(key in PEERS for _, key in wanted):
            rows.append(_measure(stage, "p2c", HEALTHY, 0.0))
            seen = rows[0].figures
            after_s = seen.urgent.p95 if seen is not None else None
        for scenario, key in wanted:
            if key in PEERS and after_s is None:
                why = "what is usual on the healthy fleet could not be measured"
                rows.append(Row(key, key, scenario.name, absent=why))
            else:
                rows.append(_measure(stage, key, scenario, after_s or 0.0))
    words = (
        f"{spec.count} emulated engines, timing profile {engines.PROFILE} at {engines.SPEED:g} "
        f"times its speed, full at {stage.saturation:.0f} such requests/s."
    )
    return report.Report(
        machine(placement), words, asdict(options.size), after_s, rows, goals.judge(rows)
    )


def _wanted(options: Options) -> Iterator[tuple[Scenario, str]]:
    for name in options.scenarios:
        for key in SCENARIOS[name].contestants:
            if options.contestants is None or key in options.contestants:
                yield SCENARIOS[name], key


def _measure(stage: Stage, key: str, scenario: Scenario, after_s: float) -> Row:
    kind = contestants.KINDS[key](after_s)
    _say(f"measuring {kind.name}, {scenario.name}")
    row = stage.measure(key, kind, scenario)
    if row.absent:
        _say(f"  absent: {row.absent}")
    return row


def _listed(words: str | None) -> tuple[str, ...] | None:
    return None if words is None else tuple(word for word in words.split(",") if word)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
