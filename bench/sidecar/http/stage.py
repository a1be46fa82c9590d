"""Measures one setup with one seed: new engines, new routers, and the clients of all routers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from bench.fleet import engines
from bench.fleet.contestants import HedgerowWith
from bench.fleet.run import doubts
from bench.fleet.statistics import Summary, summarise
from bench.priority.http.stage import SPEC, Size
from bench.sidecar.figures import Counted, Figures, Setup
from router.lab.overhead import cpu, processes
from router.lab.overhead.processes import Orderly, Placement
from router.lab.overhead.routers import Peer, PeerError, Running, Site


class Sidecar(HedgerowWith):
    """One of several routers, with the settings of a setup and otherwise the defaults."""

    setup = Setup(1)
    store = ""  # the address of the server that carries the routers' messages; "": there is none

    def config(self) -> dict[str, object]:
        return {
            **super().config(),
            **self.setup.settings(),
            "workers": self.setup.workers,
            # A tenant is the user named by a request without an API key.
            "keys": {"names_users": True},
            # All routers need the same hashes of prompts, if a policy hashes prompts to replicas.
            "access_log": {"path": "", "salt": "the same in all routers"},
            "share": {"url": self.store},
        }


@contextmanager
def store(folder: Path, placement: Placement) -> Iterator[str]:
    """A server of Redis, and its address. Raises PeerError if there is no such program."""
    program = shutil.which("redis-server")
    if program is None:
        raise PeerError("redis-server is not installed")
    path = folder / "store"
    words = [program, "--port", "0", "--unixsocket", str(path), "--save", ""]
    process = processes.start(words, placement.others, folder / "store.log")
    try:
        while not path.exists():
            if process.poll() is not None:
                raise PeerError("redis-server has ended")
            sleep(0.01)
        yield f"unix://{path}"
    finally:
        processes.stop(process)


@contextmanager
def started(
    setup: Setup, spec: engines.Spec, placement: Placement
) -> Iterator[tuple[engines.Engines, list[Peer]]]:
    """New engines, and the routers of a setup in front of them.

    Raises PeerError and `router.app.emulated_fleet.FleetError`.
    """
    kind = type("Sidecar", (Sidecar,), {"setup": setup, "policy": setup.policy})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hedgerow-sidecar-")))
        log = folder / "engines.log"
        fleet = stack.enter_context(engines.Engines(spec, placement.others, log=log))
        if setup.shares:
            kind.store = stack.enter_context(store(folder, placement))
        peers: list[Peer] = []
        for number in range(setup.routers):
            place = folder / str(number)
            place.mkdir()
            site = Site(place, fleet.ports, placement)
            peers.append(stack.enter_context(Running(kind(site))))
        yield fleet, peers


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds of all routers' processes and of the engines, and the time in seconds."""

    routers_s: float
    engines_s: float
    seconds: float
    ended: list[str]  # problems: routers that ended during the run

    def problems(self, summary: Summary) -> list[str]:
        """Return the reasons why the figures may be wrong, as text."""
        routers, fleet = self.routers_s / self.seconds, self.engines_s / self.seconds
        return [*self.ended, *doubts(summary, routers, fleet)]


def ask(
    load: Orderly, fleet: engines.Engines, peers: list[Peer], order: dict[str, Any]
) -> tuple[dict[str, Any], Used]:
    """Have the load generator carry out an order. Returns its answer and the CPU time used."""
    pids = [peer.pid for peer in peers]
    before, began = _read(pids, fleet.pid), monotonic()
    played: dict[str, Any] = load.ask(
        {
            **order,
            "ports": [peer.port for peer in peers],
            "model": engines.MODEL,
            "engines": fleet.urls,
        }
    )
    after, seconds = _read(pids, fleet.pid), monotonic() - began
    ended = [
        f"a router ended with {code} during the run"
        for peer in peers
        if peer.process is not None and (code := peer.process.poll()) is not None
    ]
    routers_s, engines_s = (
        cpu.spent_s(one, other) for one, other in zip(before, after, strict=True)
    )
    return played, Used(routers_s, engines_s, seconds, ended)


def measure(setup: Setup, seed: int, size: Size, placement: Placement, load: Orderly) -> Figures:
    """Measure a setup. Raises PeerError, `router.app.emulated_fleet.FleetError` and ValueError."""
    more = ("--kv-events",) if setup.is_exact else ()
    spec = replace(SPEC, more=(*SPEC.more, *more))
    order = {"seed": seed, "warm": size.warm, "measured": size.measured}
    with started(setup, spec, placement) as (fleet, peers):
        played, used = ask(load, fleet, peers, order)
    summary = summarise(played, inf)
    found = figures(played, summary.hit_rate or 0.0, size)
    found.problems = used.problems(summary)
    return found


def figures(played: dict[str, Any], hit_rate: float, size: Size) -> Figures:
    """Return the figures of a run. Raises ValueError if a class has no request with an answer."""
    counted = Counted(size.warm, size.until)
    for record in played["records"]:
        counted.add(
            record["urgency"],
            record["user"],
            record["due"],
            record["due"] + record["seconds"],
            None if record["error"] else record["ttft"],
            record["prompt_tokens"],
            record["output_tokens"],
        )
    return counted.figures(hit_rate)


def _read(routers: list[int], fleet: int) -> tuple[cpu.Reading, cpu.Reading]:
    return cpu.read([pid for one in routers for pid in cpu.tree(one)]), cpu.read([fleet])
