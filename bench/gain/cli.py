"""`hedgerow bench gain`: compare queue orders and routing policies by their tokens in time.

Exit code 0: measured; 1: it could not be measured, or a goal was missed in a run without `--quick`;
2: an argument is invalid.
"""

from __future__ import annotations

import argparse
import sys

from bench.findings.command import measured, usable_cpus
from bench.findings.found import Found, add_arguments as add_output
from bench.findings.stored import show
from bench.gain.found import Row, found
from bench.gain.world import ALL, AZURE, KV_TOKENS, LOADS, MOONCAKE, REPLICAS, Task, World, law
from router.lab.flags import count
from router.lab.replay.workers import run_all

REQUESTS, WINDOWS = 3000, 10
QUICK = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--azure", metavar="FILE", help="AzureLLMInferenceTrace_conv.csv")
    add("--mooncake", metavar="FILE", help="Mooncake's conversation_trace.jsonl")
    add("--loads", metavar="A,B", help=f"in %% (default: {', '.join(map(str, LOADS))})")
    add("--windows", type=count, default=WINDOWS, metavar="N", help=f"default: {WINDOWS}")
    add("--requests", type=count, default=REQUESTS, metavar="N", help="per window")
    add("--jobs", type=count, default=usable_cpus(), metavar="N", help="runs at once (CPUs)")
    add("--quick", action="store_true", help="seconds, for figures of no worth")
    add_output(parser)


def main(args: argparse.Namespace) -> int:
    return measured(lambda: run(args), args)


def run(args: argparse.Namespace) -> list[Found]:
    """Return one table per trace. Raises ValueError, TraceError, OSError and `run_all`'s errors."""
    worlds = [
        World(name, path, law(path, REPLICAS * KV_TOKENS), slos)
        for name, path, slos in (
            ("azure", args.azure, AZURE),
            ("mooncake", args.mooncake, MOONCAKE),
        )
        if path
    ]
    if not worlds:
        raise ValueError("name a trace: --azure FILE, --mooncake FILE")
    loads = LOADS if args.loads is None else tuple(int(word) for word in args.loads.split(","))
    requests, windows = (QUICK, 1) if args.quick else (args.requests, args.windows)
    founds = []
    for world in worlds:
        print(f"simulating {world.name}", file=sys.stderr, flush=True)
        places = [(load, contestant) for load in loads for contestant in ALL]
        tasks = [
            Task(contestant, world, load, seed, requests)
            for load, contestant in places
            for seed in range(1, windows + 1)
        ]
        scores = run_all(tasks, args.jobs, finished=show)
        rows = [
            Row(load, contestant, scores[number * windows : (number + 1) * windows])
            for number, (load, contestant) in enumerate(places)
        ]
        founds.append(found(world, rows, requests))
    return founds
