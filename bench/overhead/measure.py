"""The series of measurements one router goes through, and the figures that come of it.

Every figure is the median of `repeats` windows under one steady load; windows adjoin, so none
holds a ramp. A figure whose answers were not all whole, or whose streams fell behind their pace,
is marked by a line in `problems` under the figure's name.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.overhead import cpu
from bench.overhead.peers import Direct, Hedgerow, HedgerowTls, Peer, PeerError, Site
from bench.overhead.processes import Orderly, Placement

PACE = 50.0  # tokens/s of a paced stream
MB = 1_000_000
SETTLE_S = 5.0  # what a router may take to notice that paced streams' clients have left


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how much is measured."""

    repeats: int = 5
    seconds: float = 0.5  # one window
    paced_seconds: float = 1.0
    paced_streams: int = 256
    paced_lead: float = 0.5
    cadence_seconds: float = 1.0
    idle_streams: int = 2000
    idle_tls_streams: int = 500
    large_bytes: int = 4 * MB
    bulk_bytes: int = 16 * MB  # over the 8 MB above which a body is routed without decoding
    lead: float = 0.2  # load before the first window

    @classmethod
    def quick(cls) -> Plan:
        return cls(
            repeats=3, seconds=0.15, paced_seconds=0.5, idle_streams=500, idle_tls_streams=200
        )


@dataclass(slots=True)
class Row:
    """What one router's series came to; `None` or missing: not measured."""

    name: str
    version: str = "-"
    settings: str = ""
    absent: str = ""  # why it was not measured
    figures: dict[str, float] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)

    def problem(self, figure: str, text: str) -> None:
        self.problems.setdefault(figure, []).append(text)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Series:
    """Measures peers one after the other with one load generator and one set of upstreams."""

    def __init__(self, plan: Plan, placement: Placement, load: Orderly, upstreams: list[int]):
        self._plan = plan
        self._placement = placement
        self._load = load
        self._upstreams = upstreams

    def measure(self, kind: type[Peer]) -> Row:
        row = Row(kind.name, settings=kind.settings)
        try:
            with tempfile.TemporaryDirectory(prefix="hedgerow-bench-") as folder:
                self._measure(kind, row, Path(folder))
        except PeerError as error:
            row.absent = str(error)
        return row

    def _measure(self, kind: type[Peer], row: Row, folder: Path) -> None:
        row.version = self._peer(kind, folder, "unused").version()
        row.figures["others_cpu"] = others_cpu()
        if kind is not Direct:
            with Running(self._peer(kind, folder, "idle")) as peer:
                self._idle(row, peer, "idle_stream_kb", self._plan.idle_streams)
        if kind is Hedgerow:
            with Running(self._peer(HedgerowTls, folder, "tls")) as peer:
                self._idle(row, peer, "idle_tls_stream_kb", self._plan.idle_tls_streams)
        with Running(self._peer(kind, folder, "main")) as peer:
            self._main(row, peer)
            settled = kind is Direct or self._settled(row)
            if settled:
                self._heavy(row, peer)
        if not settled:
            with Running(self._peer(kind, folder, "heavy")) as peer:
                self._heavy(row, peer)

    def _peer(self, kind: type[Peer], folder: Path, use: str) -> Peer:
        own = folder / use
        own.mkdir()
        own.chmod(0o755)
        return kind(Site(own, self._upstreams, self._placement))

    def _main(self, row: Row, peer: Peer) -> None:
        self._loop(row, peer, "warm-up", connections=4, repeats=1)
        self._latency(row, peer)
        self._requests(row, peer, "c4", connections=4)
        self._requests(row, peer, "c32", connections=32)
        self._requests(row, peer, "16k", connections=8, size=16 * 1024)
        self._requests(row, peer, "128k", connections=8, size=128 * 1024)
        self._tokens(row, peer)
        self._paced(row, peer)

    def _heavy(self, row: Row, peer: Peer) -> None:
        """Last, and not in the figure for memory: bodies meant to strain it."""
        self._large(row, peer, self._plan.large_bytes)
        self._cadence(row, peer, self._plan.bulk_bytes)

    def _settled(self, row: Row) -> bool:
        """Whether the replicas fell silent after the paced streams' clients had left.

        A router that goes on reading for nobody would be measured with that load on top.
        """
        until = time.monotonic() + SETTLE_S
        last = sent_tokens(self._upstreams)
        while time.monotonic() < until:
            time.sleep(0.2)
            if (now := sent_tokens(self._upstreams)) == last:
                return True
            last = now
        row.problem(
            "token_paced",
            f"still reading from the replicas {SETTLE_S:g} s after its clients had left; large "
            "bodies were measured with a fresh process",
        )
        return False

    def _ask(self, row: Row, figure: str, peer: Peer, order: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._load.ask(
            {"host": "127.0.0.1", "port": peer.port, "root": peer.pid, "tls": peer.tls, **order}
        )
        for reason, count in answer["errors"].items():
            row.problem(figure, f"{count} × {reason}")
        if peer.process is not None and peer.process.poll() is not None:
            raise PeerError(f"ended with {peer.process.returncode} during {figure}")
        return answer

    def _loop(self, row: Row, peer: Peer, figure: str, **order: Any) -> dict[str, Any]:
        plan = self._plan
        answer = self._ask(
            row,
            figure,
            peer,
            {
                "kind": "loop",
                "repeats": plan.repeats,
                "seconds": order.pop("seconds", plan.seconds) * peer.patience,
                "lead": order.pop("lead", plan.lead) * peer.patience,
                **order,
            },
        )
        if peer.pid and figure not in ("large", "warm-up"):
            for name in ("rss", "pss"):
                seen = answer[name] / MB
                row.figures[f"{name}_mb"] = max(row.figures.get(f"{name}_mb", 0.0), seen)
        return answer

    def _requests(self, row: Row, peer: Peer, tag: str, **order: Any) -> None:
        windows = self._loop(row, peer, f"json_{tag}", **order)["windows"]
        row.figures[f"rps_{tag}"] = median(w["requests"] / w["seconds"] for w in windows)
        self._per(row, peer, f"json_{tag}", windows, "requests")

    def _per(
        self, row: Row, peer: Peer, figure: str, windows: list[dict[str, Any]], unit: str
    ) -> None:
        """CPU µs per request or token, and how busy the router was (1 = one CPU)."""
        if not peer.pid:
            return
        if not all(w[unit] for w in windows):
            row.problem(figure, f"a window without {unit}")
            return
        row.figures[f"{figure}_us"] = median(w["cpu_s"] / w[unit] * 1e6 for w in windows)
        row.figures[f"{figure}_busy"] = median(w["cpu_s"] / w["seconds"] for w in windows)
        row.figures[f"{figure}_waited"] = median(w["waited_s"] / w["seconds"] for w in windows)

    def _latency(self, row: Row, peer: Peer) -> None:
        """Alternates with direct connections, so that both see the same machine.

        What is added is the difference of the means: percentiles do not subtract.
        """
        added: list[float] = []
        seen: dict[str, list[float]] = {"mean": [], "p50": [], "p99": []}
        base: dict[str, list[float]] = {"mean": [], "p50": [], "p99": []}
        direct = Direct(peer.site)
        direct.start()
        for _ in range(self._plan.repeats):
            pair = []
            for target, into in ((direct, base), (peer, seen)):
                order = {"connections": 1, "repeats": 1, "lead": min(0.05, self._plan.lead)}
                window = self._loop(row, target, "latency", **order)["windows"][0]
                if window["latency"] is None:
                    row.problem("latency", "a window without requests")
                    return
                for name, values in into.items():
                    values.append(window["latency"][name] * 1e6)
                pair.append(window["latency"]["mean"] * 1e6)
            added.append(pair[1] - pair[0])
        row.figures["added_us"] = median(added)
        for name in seen:
            row.figures[f"latency_{name}_us"] = median(seen[name])
            row.figures[f"direct_{name}_us"] = median(base[name])

    def _tokens(self, row: Row, peer: Peer) -> None:
        answer = self._loop(row, peer, "token_flat", connections=16, tokens=400, pace=0)
        windows = answer["windows"]
        row.figures["flat_tps"] = median(w["tokens"] / w["seconds"] for w in windows)
        self._per(row, peer, "token_flat", windows, "tokens")

    def _paced(self, row: Row, peer: Peer) -> None:
        plan = self._plan
        streams = min(plan.paced_streams, peer.most_paced or plan.paced_streams)
        windows = self._loop(
            row,
            peer,
            "token_paced",
            connections=streams,
            tokens=int(PACE * 3600),
            pace=PACE,
            seconds=plan.paced_seconds,
            wait_begun=True,
            lead=plan.paced_lead,
            cut=True,
        )["windows"]
        kept = median(w["tokens"] / w["seconds"] for w in windows) / (streams * PACE)
        row.figures["pace_kept"] = kept
        if not 0.97 <= kept <= 1.03:  # above: it fell behind before, and is catching up
            row.problem("token_paced", f"kept {kept:.0%} of the pace")
        self._per(row, peer, "token_paced", windows, "tokens")

    def _large(self, row: Row, peer: Peer, size: int) -> None:
        windows = self._loop(row, peer, "large", connections=1, size=size)["windows"]
        if not peer.pid:
            return
        sent = sum(w["requests"] for w in windows) * size / MB
        if not sent:
            row.problem("large", "no request went through")
            return
        row.figures["large_ms_per_mb"] = sum(w["cpu_s"] for w in windows) / sent * 1e3
        row.figures["large_user_ms_per_mb"] = sum(w["user_s"] for w in windows) / sent * 1e3

    def _cadence(self, row: Row, peer: Peer, size: int) -> None:
        answer = self._ask(
            row,
            "cadence",
            peer,
            {
                "kind": "cadence",
                "connections": 16,
                "tokens": int(PACE * 3600),
                "pace": PACE,
                "bulk": size,
                "seconds": self._plan.cadence_seconds,
            },
        )
        row.figures["gap_alone_ms"] = answer["alone_s"] * 1e3
        row.figures["gap_beside_ms"] = answer["beside_s"] * 1e3
        if not answer["requests"]:
            row.problem("cadence", "no large body went through")

    def _idle(self, row: Row, peer: Peer, figure: str, streams: int) -> None:
        self._ask(
            row,
            figure,
            peer,
            {"kind": "loop", "connections": 32, "repeats": 1, "seconds": 0.1, "lead": 0.0},
        )
        answer = self._ask(
            row,
            figure,
            peer,
            {"kind": "idle", "connections": streams, "tokens": 1000, "pace": 0.001},
        )
        if answer["bytes_per_stream"] is not None:
            row.figures[figure] = answer["bytes_per_stream"] / 1024


def sent_tokens(upstreams: list[int]) -> int:
    """Tokens the raw replicas have written so far, all together: they share one process."""
    link = http.client.HTTPConnection("127.0.0.1", upstreams[0], timeout=10)
    try:
        link.request("GET", "/bench/counters")
        return int(json.loads(link.getresponse().read())["tokens"])
    finally:
        link.close()


class Running:
    """A started peer; stopped whatever happens."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __enter__(self) -> Peer:
        try:
            self._peer.start()
        except BaseException:
            self._peer.stop()
            raise
        return self._peer

    def __exit__(self, *_: object) -> None:
        self._peer.stop()


def others_cpu(seconds: float = 0.3) -> float:
    """CPUs in use while the bench itself rests: what else runs here disturbs every figure."""
    before, began = cpu.machine_busy_s(), time.monotonic()
    time.sleep(seconds)
    return (cpu.machine_busy_s() - before) / (time.monotonic() - began)
