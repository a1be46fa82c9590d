"""Measures one router under one kind of load, and computes the figures.

CPU time is that of the router's whole process tree, user and system, from /proc, between the start
and the end of one measurement of the router (a turn). It is divided by the number of requests that
the upstreams received in that time. If not all answers of a turn were complete, `problems` has a
line under the figure's name.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any

from bench.overhead.peers import Direct
from bench.overhead.plan import MB, PACE, Plan
from bench.overhead.row import Row
from bench.overhead.wrk import Found, Load, Wrk
from router.lab.overhead import cpu, shapes
from router.lab.overhead.processes import Orderly
from router.lab.overhead.routers import Peer, PeerError

SETTLE_S = 5.0  # seconds in which a router must notice that the clients of paced streams have left


@dataclass(frozen=True, slots=True)
class Turn:
    """One router with its row of figures, and the number of the round."""

    peer: Peer
    row: Row
    round: int

    def add(self, figure: str, value: float) -> None:
        self.row.add(figure, value, self.round)


@dataclass(frozen=True, slots=True)
class Window:
    """The router's cost in one run of wrk. `requests` is the number that the upstreams received."""

    found: Found
    requests: int
    cpu_s: float
    waited_s: float
    user_s: float


class Meter:
    """Measures routers with wrk, with the bench's own load generator, and with raw replicas."""

    def __init__(self, plan: Plan, upstreams: list[int], load: Orderly, wrk: Wrk | None):
        self._plan = plan
        self._upstreams = upstreams
        self._load = load
        self._wrk = wrk

    # -- by wrk ---------------------------------------------------------------------------------

    def warm_up(self, turn: Turn) -> None:
        self._drive(turn, "warm-up", Load(connections=4))

    def requests(self, turn: Turn, tag: str, load: Load) -> None:
        window = self._drive(turn, f"json_{tag}", load)
        if window is not None:
            turn.add(f"rps_{tag}", window.found.answers / window.found.seconds)
            self._per(turn, f"json_{tag}", window, window.requests)

    def latency(self, turn: Turn) -> None:
        """Measure the median latency at one connection, minus that directly at an upstream."""
        direct = Direct(turn.peer.site)
        direct.start()
        base = self._drive(Turn(direct, turn.row, turn.round), "latency", Load(connections=1))
        seen = self._drive(turn, "latency", Load(connections=1))
        if base is None or seen is None:
            return
        if turn.peer.pid:
            turn.add("added_us", seen.found.p50_us - base.found.p50_us)
        turn.add("latency_p50_us", seen.found.p50_us)
        turn.add("latency_p99_us", seen.found.p99_us)
        turn.add("direct_p50_us", base.found.p50_us)

    def flat(self, turn: Turn) -> None:
        """Measure streams without pacing. A stream that is aborted at the end counts as half."""
        streams, tokens = self._plan.flat_streams, self._plan.flat_tokens
        load = Load(connections=streams, ask=shapes.Ask(tokens, 0.0))
        window = self._drive(turn, "token_flat", load)
        if window is not None:
            count = tokens * window.found.answers + tokens * streams // 2
            turn.add("flat_tps", count / window.found.seconds)
            self._per(turn, "token_flat", window, count)

    def large(self, turn: Turn) -> None:
        size = self._plan.large_bytes
        window = self._drive(turn, "large", Load(connections=1, size=size))
        if window is not None and turn.peer.pid and window.requests:
            sent_mb = window.requests * size / MB
            turn.add("large_ms_per_mb", window.cpu_s / sent_mb * 1e3)
            turn.add("large_user_ms_per_mb", window.user_s / sent_mb * 1e3)

    def _drive(self, turn: Turn, figure: str, load: Load) -> Window | None:
        """Run wrk once. Returns None if wrk is not installed or failed, or if no answer arrived."""
        if self._wrk is None:
            return None
        peer, row = turn.peer, turn.row
        pids = cpu.tree(peer.pid) if peer.pid else []
        received, before = counters(self._upstreams)["requests"], cpu.read(pids)
        try:
            seconds = round(self._plan.seconds * peer.patience)
            found = self._wrk.run(peer.port, load, seconds)
        except RuntimeError as error:
            row.problem(figure, str(error))
            return None
        finally:
            _check_alive(peer, figure)
        after = cpu.read(pids)
        received = counters(self._upstreams)["requests"] - received
        for kind, count in found.errors.items():
            row.problem(figure, f"{kind} errors: {count}")
        # The end of the run aborts one request per connection; a router may have sent that one
        # twice.
        if abs(received - found.answers) > 2 * load.connections:
            row.problem(figure, f"{found.answers} answers to {received} requests at the upstreams")
        if found.bytes < found.answers * len(shapes.CHAT_BODY):
            row.problem(figure, f"short answers: {found.bytes} bytes in {found.answers}")
        if not found.answers:
            row.problem(figure, "no answer in the whole run")
            return None
        return Window(
            found,
            received,
            cpu.spent_s(before, after),
            cpu.waited_s(before, after),
            cpu.user_s(before, after),
        )

    def _per(self, turn: Turn, figure: str, window: Window, count: int) -> None:
        """Add the CPU µs per request or token, and the CPUs that the router used and waited for."""
        if turn.peer.pid:
            seconds = window.found.seconds
            turn.add(f"{figure}_us", window.cpu_s / count * 1e6)
            turn.add(f"{figure}_busy", window.cpu_s / seconds)
            turn.add(f"{figure}_waited", window.waited_s / seconds)

    # -- by the bench's own generator -----------------------------------------------------------

    def paced(self, turn: Turn) -> bool:
        """Measure paced streams. Returns False if the router must be restarted, because it still
        reads from the replicas after its clients have left.
        """
        plan, peer = self._plan, turn.peer
        streams = min(plan.paced_streams, peer.most_paced or plan.paced_streams)
        answer = self._ask(
            turn,
            "token_paced",
            {
                "kind": "loop",
                "connections": streams,
                "tokens": int(PACE * 3600),
                "pace": PACE,
                "repeats": 1,
                "seconds": plan.paced_seconds * peer.patience,
                "lead": plan.paced_lead * peer.patience,
                "wait_begun": True,
                "cut": True,
            },
        )
        window = answer["windows"][0]
        kept = window["tokens"] / window["seconds"] / (streams * PACE)
        turn.add("pace_kept", kept)
        if not 0.97 <= kept <= 1.03:  # above 1.03, the router delivers tokens that were late
            turn.row.problem("token_paced", f"kept {kept:.0%} of the pace")
        if peer.pid and window["tokens"]:
            turn.add("token_paced_us", window["cpu_s"] / window["tokens"] * 1e6)
            turn.add("token_paced_waited", window["waited_s"] / window["seconds"])
        return not peer.pid or self.settled(turn.row)

    def settled(self, row: Row) -> bool:
        """Return whether the replicas became idle after the clients of the paced streams had left.

        A router that still reads would disturb every later turn.
        """
        until = time.monotonic() + SETTLE_S
        last = counters(self._upstreams)["tokens"]
        while time.monotonic() < until:
            time.sleep(0.2)
            if (now := counters(self._upstreams)["tokens"]) == last:
                return True
            last = now
        row.problem(
            "token_paced",
            f"still reading from the replicas {SETTLE_S:g} s after its clients had left; it was "
            "restarted",
        )
        return False

    def cadence(self, turn: Turn) -> None:
        plan = self._plan
        answer = self._ask(
            turn,
            "cadence",
            {
                "kind": "cadence",
                "connections": 16,
                "tokens": int(PACE * 3600),
                "pace": PACE,
                "bulk": plan.bulk_bytes,
                "seconds": plan.cadence_seconds,
            },
        )
        turn.add("gap_alone_ms", answer["alone_s"] * 1e3)
        turn.add("gap_beside_ms", answer["beside_s"] * 1e3)
        if not answer["requests"]:
            turn.row.problem("cadence", "no large body went through")

    def idle(self, turn: Turn, figure: str, streams: int) -> None:
        warm_up = {"kind": "loop", "connections": 32, "repeats": 1, "seconds": 0.1, "lead": 0.0}
        self._ask(turn, figure, warm_up)
        order = {"kind": "idle", "connections": streams, "tokens": 1000, "pace": 0.001}
        answer = self._ask(turn, figure, order)
        if answer["bytes_per_stream"] is not None:
            turn.add(figure, answer["bytes_per_stream"] / 1024)

    def memory(self, turn: Turn) -> None:
        if turn.peer.pid:
            size = cpu.memory(cpu.tree(turn.peer.pid))
            turn.add("rss_mb", size.rss / MB)
            turn.add("pss_mb", size.pss / MB)

    def _ask(self, turn: Turn, figure: str, order: dict[str, Any]) -> dict[str, Any]:
        peer = turn.peer
        answer: dict[str, Any] = self._load.ask(
            {"host": "127.0.0.1", "port": peer.port, "root": peer.pid, "tls": peer.tls, **order}
        )
        for reason, count in answer["errors"].items():
            turn.row.problem(figure, f"{count} × {reason}")
        _check_alive(peer, figure)
        return answer


def _check_alive(peer: Peer, figure: str) -> None:
    if peer.process is not None and peer.process.poll() is not None:
        raise PeerError(f"ended with {peer.process.returncode} during {figure}")


def counters(upstreams: list[int]) -> dict[str, int]:
    """Return the requests and tokens of all raw replicas so far; the replicas share one process."""
    link = http.client.HTTPConnection("127.0.0.1", upstreams[0], timeout=10)
    try:
        link.request("GET", "/bench/counters")
        said: dict[str, int] = json.loads(link.getresponse().read())
        return said
    finally:
        link.close()


def others_cpu(seconds: float = 0.3) -> float:
    """Return the CPUs in use while the bench is idle: other work, which disturbs every figure."""
    before, began = cpu.machine_busy_s(), time.monotonic()
    time.sleep(seconds)
    return (cpu.machine_busy_s() - before) / (time.monotonic() - began)
