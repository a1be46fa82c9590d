"""`python -m bench.batches`: measure how long uploads and batches block the event loop.

The router runs in this process; its client and two emulated engines run in their own processes. The
bench measures the CPU time of every event-loop callback and of every call in the disk thread. The
disk thread lets the event loop run again after at most 5 ms, except during a single call into C.
CPU time is measured, because other processes change it little.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
from asyncio.events import Handle
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import thread_time
from typing import Any, Final

from bench.batches import client
from router.app import App
from router.app.emulated_fleet import EmulatedFleet
from router.config.model import AccessLog, Admin, Batches, Config, Queue, Replica
from router.core.disk.worker import Worker

MiB: Final = 1024 * 1024
OVER_MS: Final = 20.0  # a call that takes longer delays other requests too much
MODEL: Final = "emulated"


class Times:
    """CPU times of calls: how many, the longest and the total in ms, how many over `OVER_MS`."""

    def __init__(self) -> None:
        self.calls = 0
        self.longest_ms = 0.0
        self.over = 0
        self.total_ms = 0.0

    def add(self, begun: float) -> None:
        ms = (thread_time() - begun) * 1e3
        self.calls += 1
        self.total_ms += ms
        self.longest_ms = max(self.longest_ms, ms)
        self.over += ms > OVER_MS


class Phase:
    """The calls during one phase (such as an upload), on the event loop and in the disk thread."""

    def __init__(self) -> None:
        self.loop = Times()
        self.thread = Times()


@contextmanager
def measured(phases: list[Phase]) -> Iterator[None]:
    """Record every event-loop callback and every disk-thread call in the last item of `phases`."""
    run, call = Handle._run, Worker.__call__

    def timed_run(self: Handle) -> None:
        begun = thread_time()
        run(self)
        phases[-1].loop.add(begun)

    def timed_call(self: Worker, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                phases[-1].thread.add(begun)

        return call(self, timed, *args, **kwargs)

    Handle._run = timed_run  # type: ignore[method-assign]
    Worker.__call__ = timed_call  # type: ignore[method-assign]
    try:
        yield
    finally:
        Handle._run, Worker.__call__ = run, call  # type: ignore[method-assign]


async def measure(folder: Path, quick: bool) -> dict[str, Phase]:
    scale = 10 if quick else 1
    fleet = EmulatedFleet(2, MODEL, ["--speed", "200"])
    urls = await fleet.start()
    config = Config(
        listen="127.0.0.1:0",
        admin=Admin(listen="127.0.0.1:0"),
        replicas=tuple(Replica(url=url) for url in urls),
        queue=Queue(enabled=True),
        access_log=AccessLog(path=""),
        batches=Batches(enabled=True, folder=str(folder / "batches"), disk_free=0),
    )
    app = App(config)
    await app.start()
    gc.freeze()  # `hedgerow serve` configures the garbage collector in the same way
    gc.set_threshold(10_000, 20, 50)
    found: dict[str, Phase] = {}
    phases = [Phase()]
    try:
        with measured(phases):
            for name, work in _phases(app.port, folder, scale).items():
                phases.append(Phase())
                await work()
                found[name] = phases[-1]
                print(f"{name} …", file=sys.stderr)
                phases.append(Phase())
    finally:
        await app.stop()
        await fleet.stop()
    return found


def _phases(port: int, folder: Path, scale: int) -> dict[str, Callable[[], Awaitable[None]]]:
    """What the client does in each phase, by the phase's name in the table."""
    large, many, long = folder / "large", folder / "many", folder / "long"

    def asks(*words: object) -> Callable[[], Awaitable[None]]:
        return lambda: client.run(port, *words)

    return {
        "nothing, for a second": lambda: asyncio.sleep(1.0),
        f"upload of {500 // scale} MiB": asks("upload", large, 500 * MiB // scale),
        "its download": asks("download", large),
        f"upload of {50_000 // scale:,} lines": asks("lines", many, 50_000 // scale, 300),
        "their validation": asks("validate", many),
        "upload of 30 lines of 15 MiB": asks("lines", long, 30, 15 * MiB),
        "their validation, too": asks("validate", long),
        f"a batch of {2000 // scale:,} lines": asks("work", folder / "few", 2000 // scale, MODEL),
    }


def table(found: dict[str, Phase]) -> str:
    head = ("CPU ms, longest | over 20 | all:", "event loop", "disk's thread")
    lines = [f"{head[0]:34}{head[1]:>26}{head[2]:>26}"]
    for name, phase in found.items():
        cells = "".join(
            f"{each.longest_ms:12.1f} |{each.over:3} |{each.total_ms:7.0f}"
            for each in (phase.loop, phase.thread)
        )
        lines.append(f"{name:34}{cells}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.batches", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hedgerow-bench-") as folder:
        # Use asyncio's own loop, because its callbacks can be timed. uvloop would run the same
        # callbacks.
        found = asyncio.run(measure(Path(folder), args.quick))
    print(table(found))
    if args.json:
        rows = {n: {"loop": vars(p.loop), "thread": vars(p.thread)} for n, p in found.items()}
        Path(args.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
