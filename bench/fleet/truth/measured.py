"""Plays a script over HTTP, with fresh emulated engines and a fresh Hedgerow.

Also measures how much CPU other processes used, because other work distorts the figures most.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from bench.fleet import contestants, engines
from bench.fleet.run import Stage
from bench.fleet.script import Script
from router.lab.overhead import cpu
from router.lab.overhead.routers import Running, Site


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run over HTTP."""

    played: dict[str, Any]  # the result of `Player.play`
    others_cpu: float  # CPUs used by processes other than router, engines and load generator
    router_cpu: float  # CPUs that the router used on average
    engines_cpu: float


def play(stage: Stage, script: Script, policy: str) -> Run:
    """Play the script. Raises PeerError or FleetError if Hedgerow or the engines do not start."""
    with tempfile.TemporaryDirectory(prefix="hedgerow-truth-") as name:
        folder = Path(name)
        log = folder / "engines.log"
        with engines.Engines(stage.spec, stage.placement.others, log=log) as fleet:
            site = Site(folder, fleet.ports, stage.placement)
            with Running(contestants.hedgerow(policy)(site)) as peer:
                before, began = _Used(peer.pid, fleet.pid), monotonic()
                played = stage.play(script, peer.port, fleet.urls)
                seconds = monotonic() - began
                after = _Used(peer.pid, fleet.pid)
    router = cpu.spent_s(before.router, after.router) / seconds
    modelled = cpu.spent_s(before.engines, after.engines) / seconds
    own = (after.own_s - before.own_s) / seconds + played["cpu_share"]
    total = (after.machine_s - before.machine_s) / seconds
    return Run(played, max(total - router - modelled - own, 0.0), router, modelled)


class _Used:
    """CPU time in seconds that the machine, this process, the router and the engines have used so
    far.
    """

    def __init__(self, router: int, fleet: int) -> None:
        self.machine_s = cpu.machine_busy_s()
        self.own_s = process_time()
        self.router = cpu.read(cpu.tree(router))
        self.engines = cpu.read([fleet])
