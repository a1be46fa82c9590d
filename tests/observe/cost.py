"""Prints the cost of metrics and logs in ns per call: `python -m tests.observe.cost`.

Asserts nothing.
"""

from __future__ import annotations

import asyncio
import time
import timeit
from collections.abc import Callable

import uvloop

from router.core.errors import Reason
from router.intake.routes import KINDS
from router.observe.families.collector import Collector
from router.observe.families.family import GAUGE, Family, Source
from router.observe.log.access_log import AccessLog
from router.observe.log.milliseconds import milliseconds
from router.observe.log.record import Record
from router.observe.metrics import Metrics

NUMBER = 20_000
SLICE = 2_000


def report(name: str, call: Callable[[], object]) -> None:
    best = min(timeit.repeat(call, number=NUMBER, repeat=9)) / NUMBER
    print(f"{name:32} {best * 1e9:6.0f} ns")


def record() -> Record:
    return Record(
        1763643460.123,
        "0123456789abcdef",
        "10.1.2.3",
        "POST",
        "/v1/chat/completions",
        "chat",
        "llama-3-8b",
        True,
        200,
        Reason.OK,
        "gpu-1:8000",
        [("gpu-1:8000", "primary", Reason.OK, 123.456)],
        55.5,
        123.457,
        512,
        4096,
    )


def hot_path() -> None:
    metrics = Metrics()
    report("an empty call", lambda: None)
    report("finished", lambda: metrics.finished("chat", Reason.OK, 200, 0.123, 0.05, 512, 4096))
    report(
        "finished, with a model",
        lambda: metrics.finished("chat", Reason.OK, 200, 0.123, 0.05, 512, 4096, "llama"),
    )
    report(
        "finished, with a class",
        lambda: metrics.finished("chat", Reason.OK, 200, 0.123, 0.05, 512, 4096, "llama", "high"),
    )
    report("attempt", lambda: metrics.attempt("gpu-1:8000", "primary", Reason.OK))
    report("milliseconds", lambda: milliseconds(0.1234567))
    report("Record, positional", record)


async def lines() -> None:
    log = AccessLog("/dev/null", 0.5, 1 << 26)
    line = record()
    best = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        for _ in range(SLICE):
            log.write(line)
        best = min(best, time.perf_counter() - start)
        await asyncio.sleep(0)
    print(f"{'AccessLog.write':32} {best / SLICE * 1e9:6.0f} ns  (dropped {log.dropped})")
    log.close()


async def scrapes() -> None:
    for replicas in (3, 64, 1000):
        ids = [f"10.0.0.{number}:8000" for number in range(replicas)]
        metrics = Metrics()
        for kind in KINDS[:4]:
            metrics.finished(kind, Reason.OK, 200, 0.1, 0.1, 1, 1, "llama")
        for replica in ids:
            metrics.attempt(replica, "primary", Reason.OK)
            metrics.attempt(replica, "primary", Reason.CLIENT_GONE)
        inflight = dict.fromkeys(ids, 1.0)
        held: Family[dict[str, float]] = Family(
            "replica_inflight", GAUGE, "Attempts.", lambda each: each, ("replica",)
        )
        collector = Collector(metrics, Source((held,), lambda each=inflight: each))
        pieces = []
        scrape = asyncio.ensure_future(collector.render())
        while not scrape.done():
            start = time.perf_counter()
            await asyncio.sleep(0)
            pieces.append(time.perf_counter() - start)
        text, _ = await scrape
        print(
            f"scrape of {replicas:4} replicas: {sum(pieces) * 1e3:5.1f} ms,"
            f" longest piece {max(pieces) * 1e3:4.1f} ms, {len(text)} bytes"
        )


async def main() -> None:
    await lines()
    await scrapes()


if __name__ == "__main__":
    hot_path()
    uvloop.run(main())
