"""The bench's own load generator, for loads that `wrk` cannot create.

It creates paced and idle streams, measures gaps in streams beside large bodies, and sends requests
to existing fleets (`--upstream`). It checks every answer.

It is slower than a fast router, so it must not run closed loops in which the CPU of routers is
compared: the router would sleep between requests. Paced streams are no problem, because the
upstream sets their rate.

The module runs as a separate process (`python -m router.lab.overhead.load`) that reads one JSON
command per line and answers with one JSON line. It reads the router's CPU time at the moments at
which it reads its own counts, so that both refer to the same requests. An answer that is short, cut
off or not a 200 is counted as an error, never as a request.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httptools
import uvloop

from router.lab.overhead import cpu, shapes
from router.lab.overhead.routers import unverified

OPEN_S = 30.0  # seconds within which all streams of a run must have begun
# Bytes; a body of this size is not copied, because that would delay other connections.
LARGE = 1 << 20
DRAIN_S = 10.0  # seconds that unfinished requests may still take at the end of a run


@dataclass(slots=True)
class Tally:
    """Counts of the answers and tokens that have arrived so far."""

    requests: int = 0
    tokens: int = 0
    begun: int = 0  # number of streams that delivered a token
    latencies: list[float] = field(default_factory=list)  # seconds of whole answers and streams
    firsts: list[float] = field(default_factory=list)  # seconds until a stream's first token
    errors: Counter[str] = field(default_factory=Counter)
    longest_gap: float = 0.0  # seconds between two tokens of one paced stream


class Client(asyncio.Protocol):
    """One connection of a client. It sends a request, checks the answer, and sends the next
    request.
    """

    def __init__(self, run: Run, prompt: shapes.Prompt, ask: shapes.Ask | None) -> None:
        self.busy = False
        self._run = run
        self._prompt = prompt
        self._ask = ask
        self._transport: Any = None
        self._gaps = run.gaps and ask is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._run.clients.add(self)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._run.clients.discard(self)
        self._transport = None
        if self.busy and not self._run.closing:
            self._run.tally.errors["connection lost"] += 1
        self._run.left(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self) -> None:
        if self._run.stopping:
            self._transport.close()
            return
        # A new parser costs 0.5 µs and has no state of the previous answer.
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._tokens = 0
        self._tail = self._end = b""
        self.busy = True
        self._began = self._last = time.perf_counter()
        if self._prompt.body_bytes < LARGE:
            self._transport.write(self._prompt.next())
        else:
            for part in self._prompt.next_parts():
                self._transport.write(part)

    def data_received(self, data: bytes) -> None:
        if self._gaps:
            now = time.perf_counter()
            if self._tokens and now - self._last > self._run.tally.longest_gap:
                self._run.tally.longest_gap = now - self._last
            self._last = now
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("unreadable answer")

    def on_body(self, body: bytes) -> None:
        if self._ask is None:
            self._body.append(body)
            return
        mark = self._run.token_mark
        seen = self._tail + body
        found = seen.count(mark)
        self._tail = seen[1 - len(mark) :]  # may be the first bytes of a mark
        self._end = (self._end + body)[-16:]
        if not found:
            return
        tally = self._run.tally
        tally.tokens += found
        if not self._tokens:
            tally.firsts.append(time.perf_counter() - self._began)
            tally.begun += 1
            if tally.begun == self._run.expected_streams:
                self._run.all_begun.set()
        self._tokens += found

    def on_message_complete(self) -> None:
        self.busy = False
        tally = self._run.tally
        if self._parser.get_status_code() != 200:
            self._fail(f"status {self._parser.get_status_code()}")
            return
        if self._ask is None:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            if self._run.answer_mark not in body:
                self._fail("short answer")
                return
        elif b"[DONE]" not in self._end or self._tokens != (self._ask.tokens or self._tokens):
            self._fail("short stream")
            return
        tally.requests += 1
        tally.latencies.append(time.perf_counter() - self._began)
        if self._parser.should_keep_alive():
            self._send()
        else:
            self._transport.close()

    def _fail(self, reason: str) -> None:
        self.busy = False
        self._run.tally.errors[reason] += 1
        if self._transport is not None:
            self._transport.abort()


class Run:
    """A closed loop of clients against one address: each sends a request after the last answer."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.tally = Tally()
        self.clients: set[Client] = set()
        self.stopping = False  # if set, clients finish their current request and close
        # If set, running requests are aborted, which does not count as an error.
        self.closing = False
        self.gaps: bool = order.get("gaps", False)
        self.token_mark: bytes = order.get("token_mark", "").encode() or shapes.TOKEN_MARK
        self.answer_mark: bytes = order.get("answer_mark", "").encode() or shapes.ANSWER_MARK
        self.all_begun = asyncio.Event()
        self._empty = asyncio.Event()
        self._host: str = order["host"]
        self._port: int = order["port"]
        self._tls = unverified() if order.get("tls") else None
        self._count: int = order["connections"]
        self._ask = shapes.Ask(order["tokens"], order["pace"]) if "tokens" in order else None
        self.expected_streams = self._count
        self._prompt = shapes.Prompt(
            f"{self._host}:{self._port}",
            order.get("size", 0),
            self._ask,
            order.get("model", shapes.MODEL),
            order.get("limit", 16),
        )
        if order.get("foreign"):  # real engines choose the number of tokens
            self._ask = shapes.Ask(0, 0.0) if self._ask else None
        self._again: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        step = 64  # connections opened at once, so that the listen backlog suffices
        for first in range(0, self._count, step):
            await asyncio.gather(*(self._connect() for _ in range(min(step, self._count - first))))

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(
                lambda: Client(self, self._prompt, self._ask),
                self._host,
                self._port,
                ssl=self._tls,
            )
        except OSError:
            self.tally.errors["connect"] += 1

    def left(self, client: Client) -> None:
        """Replace a closed connection while the run lasts, after a delay if there were errors."""
        if self.stopping or self.closing:
            if not self.clients:
                self._empty.set()
            return
        task = asyncio.get_running_loop().create_task(self._replace())
        self._again.add(task)
        task.add_done_callback(self._again.discard)

    async def _replace(self) -> None:
        if self.tally.errors:
            await asyncio.sleep(0.01)
        if not self.stopping:
            await self._connect()

    async def close(self, drain: bool) -> None:
        self.stopping = True
        if drain and self.clients:
            try:
                await asyncio.wait_for(self._empty.wait(), DRAIN_S)
            except TimeoutError:
                self.tally.errors["unanswered"] += sum(client.busy for client in self.clients)
        self.closing = True
        for client in list(self.clients):
            client.close()
        await asyncio.gather(*self._again, return_exceptions=True)
        while self.clients:
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Cut:
    """The counts and the router's CPU time at one moment."""

    at: float
    cpu: cpu.Reading
    requests: int
    tokens: int
    latencies: int
    firsts: int


def _cut(run: Run, pids: list[int]) -> Cut:
    tally = run.tally
    return Cut(
        time.perf_counter(),
        cpu.read(pids),
        tally.requests,
        tally.tokens,
        len(tally.latencies),
        len(tally.firsts),
    )


def _window(run: Run, before: Cut, after: Cut) -> dict[str, Any]:
    return {
        "seconds": after.at - before.at,
        "cpu_s": cpu.spent_s(before.cpu, after.cpu),
        "requests": after.requests - before.requests,
        "tokens": after.tokens - before.tokens,
        "waited_s": cpu.waited_s(before.cpu, after.cpu),
        "user_s": cpu.user_s(before.cpu, after.cpu),
        "latency": _summary(run.tally.latencies[before.latencies : after.latencies]),
        "first": _summary(run.tally.firsts[before.firsts : after.firsts]),
    }


def _summary(times: list[float]) -> dict[str, float] | None:
    """Mean and percentiles in seconds; None without values."""
    if not times:
        return None
    ranked = sorted(times)
    last = len(ranked) - 1
    return {
        "mean": sum(ranked) / len(ranked),
        **{f"p{p:g}": ranked[min(last, int(len(ranked) * p / 100))] for p in (50, 90, 99)},
        "max": ranked[-1],
    }


async def loop_run(order: dict[str, Any]) -> dict[str, Any]:
    """Run a closed loop for `lead` seconds, then for `repeats` measured windows of `seconds`.

    Fields of the order: host, port, connections, size (prompt characters), tokens and pace (only
    for streams), seconds, repeats, lead, root (PID of the router; 0 for none), and cut (abort the
    streams at the end).
    """
    run = Run(order)
    pids = cpu.tree(order["root"]) if order.get("root") else []
    await run.open()
    if order.get("wait_begun"):
        await _begun(run)
    await asyncio.sleep(order.get("lead", 0.1))
    run.tally.longest_gap = 0.0
    cuts = [_cut(run, pids)]
    for _ in range(order["repeats"]):
        await asyncio.sleep(order["seconds"])
        cuts.append(_cut(run, pids))
    longest_gap = run.tally.longest_gap
    size = cpu.memory(pids)
    await run.close(drain=not order.get("cut"))
    return {
        "windows": [_window(run, a, b) for a, b in itertools.pairwise(cuts)],
        "requests": run.tally.requests,
        "tokens": run.tally.tokens,
        "errors": dict(run.tally.errors),
        "longest_gap_s": longest_gap,
        "rss": size.rss,
        "pss": size.pss,
    }


async def idle_run(order: dict[str, Any]) -> dict[str, Any]:
    """Measure memory per idle stream: the growth of Pss, divided by the number of streams. Each
    stream delivers one token and then nothing.
    """
    pids = cpu.tree(order["root"])
    before = cpu.memory(pids)
    run = Run(order)
    await run.open()
    await _begun(run)
    after = cpu.memory(pids)
    begun = run.tally.begun
    await run.close(drain=False)
    return {
        "streams": begun,
        "bytes_per_stream": (after.pss - before.pss) / begun if begun else None,
        "errors": dict(run.tally.errors),
    }


async def _begun(run: Run) -> None:
    """Wait until every stream has delivered a token; count streams that did not as errors."""
    try:
        await asyncio.wait_for(run.all_begun.wait(), OPEN_S)
    except TimeoutError:
        run.tally.errors["stream not begun"] += run.expected_streams - run.tally.begun


async def cadence_run(order: dict[str, Any]) -> dict[str, Any]:
    """Measure the longest gap in paced streams, alone and while another connection sends large
    bodies.
    """
    run = Run({**order, "gaps": True})
    await run.open()
    await _begun(run)
    await asyncio.sleep(order["seconds"] / 3)
    run.tally.longest_gap = 0.0
    await asyncio.sleep(order["seconds"])
    alone, run.tally.longest_gap = run.tally.longest_gap, 0.0
    bulk_order = {k: v for k, v in order.items() if k not in ("tokens", "pace")}
    bulk = Run({**bulk_order, "connections": 1, "size": order["bulk"]})
    await bulk.open()
    await asyncio.sleep(order["seconds"])
    beside = run.tally.longest_gap
    await bulk.close(drain=True)
    await run.close(drain=False)
    return {
        "alone_s": alone,
        "beside_s": beside,
        "requests": bulk.tally.requests,
        "errors": dict(run.tally.errors + bulk.tally.errors),
    }


KINDS = {"loop": loop_run, "idle": idle_run, "cadence": cadence_run}


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        answer = uvloop.run(KINDS[order["kind"]](order))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
