"""Restarts a router again and again under load, and counts what its clients lose: nothing.

    python -m tests.faults.restart.prover --restarts 10 --streams 500 --rate 200

prints one line of JSON per restart and one with all counts. The exit status is 1 if a connection
was refused, a request was not answered, or a stream was cut.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

import uvloop

from router.core.limits import raise_open_files
from tests.faults.restart.load import Load, slow_stream
from tests.harness.process import RouterProcess, serving, write_config
from tests.harness.replica import HostileReplica

EXTRA = "timeouts: {keep_alive: 1}\nqueue: {enabled: false}\ndrain: {lame_duck: 0, grace: 60}\n"


@dataclass
class Trial:
    """How much load and how many restarts."""

    restarts: int = 2
    streams: int = 40
    rate: float = 100.0  # new connections per second
    kept: int = 10
    tokens: int = 10  # of each stream
    gap_s: float = 0.1  # between two tokens
    pause_s: float = 0.3  # between two restarts
    workers: int = 1


@dataclass
class Outcome:
    """The counts of a trial. Empty `failed`: nothing was lost."""

    restarts: int
    streams: int
    connects: int
    kept: int
    moved: int  # kept connections that were told to move to the new process
    crossed: int  # streams that were in progress at a restart, summed over the restarts
    failed: dict[str, int]
    seconds: float


async def prove(trial: Trial, folder: Path, *, prints: bool = False) -> Outcome:
    """Run a trial. `folder` gets the configuration."""
    async with HostileReplica(slow_stream(trial.tokens, trial.gap_s)) as hostile:
        config = folder / "config.yaml"
        write_config(config, hostile.url, extra=f"{EXTRA}workers: {trial.workers}\n")
        begun = monotonic()
        crossed = 0
        async with serving(config) as router:
            if trial.workers > 1:
                await router.event_after(0, "workers serve")
            load = Load(router.port)
            load.start(trial.streams, trial.rate, trial.kept)
            for _ in range(trial.restarts):
                await asyncio.sleep(trial.pause_s)
                crossed += load.streaming
                await _restart(router, prints)
            await asyncio.sleep(trial.pause_s)
            await load.end()
    return Outcome(
        trial.restarts,
        load.done["stream"],
        load.done["connect"],
        load.done["kept"],
        load.done["moved"],
        crossed,
        {f"{kind}: {why}": n for (kind, why), n in load.failed.items()},
        round(monotonic() - begun, 1),
    )


async def _restart(router: RouterProcess, prints: bool) -> None:
    begun = monotonic()
    event = await router.restart()
    assert event["message"] == "restarted", event
    if prints:
        print(json.dumps({"pid": event["pid"], "seconds": round(monotonic() - begun, 2)}))


def main() -> int:
    parser = argparse.ArgumentParser(description="Restart a router under load.")
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--rate", type=float, default=200.0, help="new connections per second")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    raise_open_files()
    trial = Trial(args.restarts, args.streams, args.rate, kept=50, tokens=12, gap_s=1.0, pause_s=2)
    trial.workers = args.workers
    with tempfile.TemporaryDirectory(prefix="hedgerow-restart-") as folder:
        outcome = uvloop.run(prove(trial, Path(folder), prints=True))
    print(json.dumps(asdict(outcome)))
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
