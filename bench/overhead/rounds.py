"""Runs the bench: starts all routers, and measures each kind of load in rounds over all of them.

In a round the routers are measured one after the other within seconds, and the order changes from
round to round. So a change of the machine's speed affects all routers, and both figures of a ratio
have the same conditions. All routers run all the time; only the measured router has clients.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.overhead.measure import Meter, Turn, others_cpu
from bench.overhead.peers import Direct, HedgerowTls
from bench.overhead.plan import Plan, turns
from bench.overhead.row import Row
from bench.overhead.wrk import Load
from router.lab.overhead.processes import Placement
from router.lab.overhead.routers import Hedgerow, Peer, PeerError, Running, Site


class Entry:
    """One measured router: its class, its folder, its results and its running process."""

    def __init__(self, kind: type[Peer], folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.row = Row(kind.name, settings=kind.settings)
        self.peer: Peer | None = None

    def stop(self) -> None:
        if self.peer is not None:
            self.peer.stop()
            self.peer = None


class Rounds:
    """Measures several routers in the same rounds."""

    def __init__(self, plan: Plan, placement: Placement, upstreams: list[int], meter: Meter):
        self._plan = plan
        self._placement = placement
        self._upstreams = upstreams
        self._meter = meter

    def measure(self, kinds: Sequence[type[Peer]]) -> list[Row]:
        """Return one row per router. `absent` says why a router could not be measured."""
        with tempfile.TemporaryDirectory(prefix="hedgerow-bench-") as name, ExitStack() as stack:
            entries = [Entry(kind, Path(name)) for kind in kinds]
            for entry in entries:
                stack.callback(entry.stop)
                _tell(f"starting {entry.row.name}")
                self._guarded(entry, self._begin)
            self._measure(entries)
        return [entry.row for entry in entries]

    def _measure(self, entries: list[Entry]) -> None:
        meter = self._meter
        for number in range(self._plan.rounds):
            busy = others_cpu()
            for entry in entries:
                entry.row.add("others_cpu", busy, number)
        self._each("warm-up", entries, meter.warm_up, rounds=1)
        self._each("latency", entries, meter.latency)
        for tag, load in (
            ("c4", Load(connections=4)),
            ("c32", Load(connections=32)),
            ("16k", Load(connections=8, size=16 * 1024)),
            ("128k", Load(connections=8, size=128 * 1024)),
        ):
            self._each(f"json_{tag}", entries, lambda t, a=tag, b=load: meter.requests(t, a, b))
        self._each("token_flat", entries, meter.flat)
        for number in range(self._plan.rounds):
            for entry in turns(entries, number):
                self._guarded(entry, lambda e, n=number: self._paced(e, n))
        self._each("memory", entries, meter.memory, rounds=1)
        # Large bodies come last, so that they do not change the figure for memory.
        self._each("large", entries, meter.large)
        self._each("cadence", entries, meter.cadence)

    def _each(
        self,
        name: str,
        entries: list[Entry],
        act: Callable[[Turn], None],
        rounds: int | None = None,
    ) -> None:
        _tell(f"measuring {name}")
        for number in range(rounds or self._plan.rounds):
            for entry in turns(entries, number):
                self._guarded(entry, lambda e, n=number: act(self._turn(e, n)))

    def _turn(self, entry: Entry, number: int) -> Turn:
        assert entry.peer is not None
        return Turn(entry.peer, entry.row, number)

    def _guarded(self, entry: Entry, act: Callable[[Entry], None]) -> None:
        """Call `act`, unless the router is absent. A router that fails is absent from then on."""
        if entry.row.absent:
            return
        try:
            act(entry)
        except PeerError as error:
            entry.row.absent = str(error)
            entry.stop()
            _tell(f"  {entry.row.name} is absent: {error}")

    def _begin(self, entry: Entry) -> None:
        """Measure the memory of idle streams (each kind in a new process of the router), then start
        the process for all other measurements.
        """
        kind, plan = entry.kind, self._plan
        entry.row.version = self._peer(entry, kind, "unused").version()
        idle = [(kind, "idle_stream_kb", plan.idle_streams)] if kind is not Direct else []
        if kind is Hedgerow:
            idle.append((HedgerowTls, "idle_tls_stream_kb", plan.idle_tls_streams))
        for which, figure, streams in idle:
            with Running(self._peer(entry, which, figure)) as peer:
                self._meter.idle(Turn(peer, entry.row, 0), figure, streams)
        self._start(entry, "main")

    def _paced(self, entry: Entry, number: int) -> None:
        if not self._meter.paced(self._turn(entry, number)):
            entry.stop()
            self._start(entry, f"again-{number}")

    def _start(self, entry: Entry, use: str) -> None:
        entry.peer = self._peer(entry, entry.kind, use)
        entry.peer.start()

    def _peer(self, entry: Entry, kind: type[Peer], use: str) -> Peer:
        own = entry.folder / f"{entry.row.name}-{use}"
        own.mkdir()
        own.chmod(0o755)
        return kind(Site(own, self._upstreams, self._placement))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
