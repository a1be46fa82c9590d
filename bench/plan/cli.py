"""`hedgerow bench plan`: compare the GPU-hours of a plan, a static fleet and the reactive rule.

Exit code 0: measured; 1: it could not be measured, or a goal was missed in a run without `--quick`;
2: an argument or an input file is invalid.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from bench.findings import written
from bench.findings.command import measured
from bench.findings.found import Found
from bench.plan.contestants import LEADS_S, NAMES, cheapest, forecast_week, outcomes
from bench.plan.fleet import Outcome
from bench.plan.found import Row, found
from bench.plan.traffic import Demand, bursts, seeded, with_bursts
from bench.plan.world import Kind, World
from router.core.extras import MissingExtra
from router.replay import arguments as words

SEEDS, QUICK = 5, 1
# The costs are the usual relation of prices. The reclaims are more frequent than those of most
# spot machines.
TWO_KINDS = (
    Kind("on-demand", least=1),
    Kind("spot", cost=0.35, most=8, reclaims_per_h=0.05),
)
TWO_REGIONS = "two regions, spot"
LATE_H = 7.0  # hours by which the day of the second region begins later
SPILL = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--azure", metavar="FILE", help="also with the bursts of AzureLLMInferenceTrace_conv.csv")
    add("--mooncake", metavar="FILE", help="also with those of Mooncake's conversation_trace.jsonl")
    add("--seeds", type=words.count, default=SEEDS, metavar="N", help=f"default: {SEEDS}")
    add("--quick", action="store_true", help="one seed, for figures of no worth")
    written.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    try:
        return measured(lambda: [run(args)], args)
    except MissingExtra as err:
        print(err, file=sys.stderr)
        return 1


def run(args: argparse.Namespace) -> Found:
    """Simulate every demand, seeded and of traces. Raises TraceError, OSError and MissingExtra."""
    seeds = range(1, 1 + (QUICK if args.quick else args.seeds))
    one_region: dict[str, Callable[[int], Demand]] = {"week": seeded}
    for name, path in (("azure", args.azure), ("mooncake", args.mooncake)):
        if path:
            trace = bursts(name, path)
            one_region[name] = lambda seed, trace=trace: with_bursts(trace, seed)  # type: ignore[misc]
    rows = []
    for name, demand in one_region.items():
        demands = [{"": demand(seed)} for seed in seeds]
        rows += compared(
            [
                [World(name, each, lead_s, seed=seed) for lead_s in LEADS_S]
                for each, seed in zip(demands, seeds, strict=True)
            ]
        )
    rows += compared(
        [
            [
                World(
                    TWO_REGIONS,
                    {"eu": seeded(seed, "eu"), "us": seeded(seed, "us", LATE_H)},
                    lead_s,
                    TWO_KINDS,
                    SPILL,
                    seed,
                )
                for lead_s in LEADS_S[: 1 if args.quick else None]
            ]
            for seed in seeds
        ]
    )
    return found(rows)


def compared(by_seed: Sequence[Sequence[World]]) -> list[Row]:
    """Simulate worlds that differ in the lead time only; for each seed one list of them."""
    print(f"simulating {by_seed[0][0].name}", file=sys.stderr, flush=True)
    runs: dict[str, list[dict[str, dict[float, Outcome]]]] = {}
    for worlds in by_seed:
        ahead = {region: forecast_week(one) for region, one in worlds[0].demands.items()}
        for world in worlds:
            name = f"{world.name}, start {world.lead_s / 60.0:g} min"
            runs.setdefault(name, []).append(outcomes(world, ahead))
    rows = []
    for name, seeds in runs.items():
        for contestant in NAMES:
            best = [cheapest(one[contestant]) for one in seeds]
            rows.append(Row(name, contestant, [knob for knob, _ in best], [one for _, one in best]))
    return rows
