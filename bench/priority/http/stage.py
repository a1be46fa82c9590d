"""Measures one order after the other, each with new engines, a new router and the same clients."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from bench.fleet import engines
from bench.fleet.run import doubts
from bench.fleet.statistics import Summary, differences, summarise
from bench.priority import traffic as law
from bench.priority.http.contestants import hedgerow
from bench.priority.http.traffic import Size
from bench.priority.rows import Row, times
from router.lab.overhead import cpu
from router.lab.overhead.processes import Orderly, Placement
from router.lab.overhead.routers import PeerError, Running, Site
from router.lab.replay.workers import Broken

_LONGEST = 8192  # maximum tokens of a prompt and its answer
SPEC = engines.Spec(
    count=law.ENGINES,
    speed=1.0,
    more=(
        *("--max-num-seqs", str(law.SLOTS)),
        *("--num-blocks", str(law.KV_TOKENS // engines.BLOCK_TOKENS)),
        *("--max-model-len", str(_LONGEST)),
    ),
)
_NO_SLO_S = inf  # no SLO: this bench does not use the goodput


def run(orders: Sequence[str], seed: int, size: Size, placement: Placement) -> list[Row]:
    """Measure all orders. Raises Broken, and `router.app.emulated_fleet.FleetError`."""
    rows = []
    with Orderly("bench.priority.http.load", cpus=placement.others) as load:
        for order in orders:
            print(f"measuring {order}", file=sys.stderr, flush=True)
            try:
                with tempfile.TemporaryDirectory(prefix="hedgerow-priority-") as name:
                    rows.append(_measure(order, seed, size, placement, load, Path(name)))
            except PeerError as error:
                raise Broken(f"{order} could not be measured: {error}") from None
    return rows


def _measure(
    order: str, seed: int, size: Size, placement: Placement, load: Orderly, folder: Path
) -> Row:
    kind = hedgerow(order)
    problems = []
    with (
        engines.Engines(SPEC, placement.others, log=folder / "engines.log") as fleet,
        Running(kind(Site(folder, fleet.ports, placement))) as peer,
    ):
        before, began = _read(peer.pid, fleet.pid), monotonic()
        played = load.ask(
            {
                "seed": seed,
                "warm": size.warm,
                "measured": size.measured,
                "host": "127.0.0.1",
                "port": peer.port,
                "model": engines.MODEL,
                "engines": fleet.urls,
            }
        )
        after, seconds = _read(peer.pid, fleet.pid), monotonic() - began
        if peer.process is not None and (code := peer.process.poll()) is not None:
            problems.append(f"ended with {code} during the run")
    router_cpu, engines_cpu = (
        cpu.spent_s(one, other) / seconds for one, other in zip(before, after, strict=True)
    )
    summary: Summary = summarise(played, _NO_SLO_S)
    problems += doubts(summary, router_cpu, engines_cpu)
    queried = sum(differences(played["counters"], "queried"))
    hits = sum(differences(played["counters"], "hits"))
    return Row(
        order,
        {name: times(_ttfts(played["records"], name)) for name in law.CLASSES},
        summary.tokens_s,
        hits / queried if queried else None,
        sum(summary.errors.values()),
        router_cpu,
        problems,
    )


def _ttfts(records: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Times to first token of the class in seconds; infinite without a whole answer."""
    return [
        inf if record["ttft"] is None or record["error"] else float(record["ttft"])
        for record in records
        if record["measured"] and record["urgency"] == name
    ]


def _read(router: int, fleet: int) -> tuple[cpu.Reading, cpu.Reading]:
    return cpu.read(cpu.tree(router)), cpu.read([fleet])
