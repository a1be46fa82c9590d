"""`hedgerow bench plan`: compare the GPU-hours of a plan, a static fleet and the reactive rule.

Exit code 0: measured; 1: it could not be measured, or a goal was missed in a run without `--quick`;
2: an argument or an input file is invalid.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from bench.findings import written
from bench.findings.command import measured
from bench.findings.found import Found
from bench.plan.contestants import LEADS_S, NAMES, cheapest, forecast_week, outcomes
from bench.plan.found import Row, found
from bench.plan.traffic import Demand, bursts, seeded, with_bursts
from router.core.extras import MissingExtra
from router.replay import arguments as words

SEEDS, QUICK = 5, 1


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
    worlds: dict[str, Callable[[int], Demand]] = {"week": seeded}
    for name, path in (("azure", args.azure), ("mooncake", args.mooncake)):
        if path:
            trace = bursts(name, path)
            worlds[name] = lambda seed, trace=trace: with_bursts(trace, seed)  # type: ignore[misc]
    rows = []
    for name, demand in worlds.items():
        print(f"simulating {name}", file=sys.stderr, flush=True)
        demands = [demand(seed + 1) for seed in range(QUICK if args.quick else args.seeds)]
        forecasts = list(map(forecast_week, demands))
        for lead_s in LEADS_S:
            runs = [
                outcomes(one, lead_s, ahead) for one, ahead in zip(demands, forecasts, strict=True)
            ]
            world = f"{name}, start {lead_s / 60.0:g} min"
            for contestant in NAMES:
                best = [cheapest(one[contestant]) for one in runs]
                rows.append(
                    Row(world, contestant, [knob for knob, _ in best], [one for _, one in best])
                )
    return found(rows)
