"""Access logs with known waits: engine cores on a virtual clock, requests assigned in turn.

Lines come from the access log's own `Record`, in the order of the requests' ends, as in a router.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from router.lab.emulator.core.engine_core import (
    FINISHED,
    FIRST_TOKEN,
    CoreConfig,
    EngineCore,
    Request,
)
from router.lab.emulator.core.timing import Timing
from router.observe.log.access_log import milliseconds
from router.observe.log.record import Record

EPOCH = 1_772_366_400.0  # when these logs begin: 1 March 2026, 12:00 UTC
CORE = CoreConfig(
    max_num_seqs=64, num_blocks=40_000, block_size=16, token_events=False, prefix_caching=True
)

RANKS = {"critical": 0, "high": 1, "normal": 2, "low": 3, "batch": 4}


@dataclass(slots=True)
class Ask:
    """One planned request of a test."""

    at: float
    prompt: int
    output: int
    tenant: str = ""
    priority: str = ""
    replica: int = 0
    blocks: tuple[int, ...] = ()
    stream: bool = True
    model: str = "m"
    client: str = "10.0.0.1"


def played(
    asks: Iterable[Ask], timing: Timing, replicas: int = 1, core: CoreConfig = CORE
) -> list[Record]:
    """The log lines of these requests. Each request is sent at once, to its replica number modulo
    the number of replicas.
    """
    cores = [EngineCore[Request](core, timing) for _ in range(replicas)]
    records: list[Record] = []
    plans: dict[str, tuple[Ask, Request]] = {}
    first: dict[str, float] = {}

    def run(index: int, until: float) -> None:
        one = cores[index]
        while (due := one.next_event(until)) is not None and due <= until:
            for kind, request in one.advance(due):
                if kind == FIRST_TOKEN:
                    first[request.id] = one.clock
                elif kind == FINISHED:
                    ask, _ = plans.pop(request.id)
                    at = first.pop(request.id)
                    records.append(_record(ask, request, at, one.clock, index % replicas))

    for number, ask in enumerate(sorted(asks, key=lambda ask: ask.at)):
        index = ask.replica % replicas
        run(index, ask.at)
        rank = RANKS.get(ask.priority, 0)
        request = Request(f"r{number}", ask.prompt, ask.output, ask.blocks, rank)
        plans[request.id] = ask, request
        cores[index].submit(request, ask.at)
    for index in range(replicas):
        run(index, float("inf"))
    records.sort(key=lambda record: record.ts + record.duration_ms * 1e-3)
    return records


def write(path: Path, records: Iterable[Record]) -> str:
    encode = msgspec.json.Encoder().encode
    path.write_bytes(b"".join(encode(record) + b"\n" for record in records))
    return str(path)


def poisson(rng: Random, rate: float, begin: float, end: float) -> list[float]:
    times, at = [], begin
    while (at := at + rng.expovariate(rate)) < end:
        times.append(at)
    return times


def changed(records: Iterable[Record], change: Callable[[Record], Record]) -> list[Record]:
    return [change(record) for record in records]


def _record(ask: Ask, request: Request, first: float, end: float, replica: int) -> Record:
    ms = milliseconds(end - ask.at)
    name = f"r{replica}"
    return Record(
        ts=EPOCH + ask.at,
        id=request.id,
        client=ask.client,
        method="POST",
        path="/v1/chat/completions",
        kind="chat",
        model=ask.model,
        stream=ask.stream,
        status=200,
        reason="ok",
        replica=name,
        attempts=[(name, "primary", "ok", ms)],
        ttft_ms=milliseconds(first - ask.at) if ask.stream else ms,
        duration_ms=ms,
        bytes_in=4 * ask.prompt,
        bytes_out=4 * ask.output,
        priority=ask.priority,
        tenant=ask.tenant,
        prompt_tokens=ask.prompt,
        output_tokens=ask.output,
        cached_tokens=request.cached_tokens,
        exact=True,
        estimated_tokens=ask.prompt,
    )
