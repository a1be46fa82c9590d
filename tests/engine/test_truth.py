"""The simulator compared with two real engines: fitted to half of a log, judged by the other half.

The purpose is to print the figures: engines, router and clients share a few cores, so that only the
order of magnitude is asserted.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from math import inf
from pathlib import Path
from random import Random

from bench.fleet.stream import Answer, Link
from bench.fleet.truth import report
from bench.fleet.truth.figures import compare
from bench.fleet.truth.holdout import Holdout, holdout
from bench.fleet.truth.rows import Row, Truth
from router.emulator.core.core_config import CoreConfig
from tests.engine.loads import bodies
from tests.engine.machine.cores import on_cores_of_their_own
from tests.engine.machine.fleet import BLOCK_TOKENS, KV_BLOCKS, SLOTS, Engine, Hedgerow
from tests.engine.machine.processes import eventually

POLICY = "kv_aware"
# Requests of each client, by the number of concurrent clients; equal in both halves of the log.
CLIENTS = {1: 32, 2: 11, 3: 8, 4: 6}
PROMPT, OUTPUT = (100, 1800), (12, 32)  # tokens, which here are characters
PREFIXES, PREFIX, SHARING = 3, 700, 0.3
FACTOR = 3.0  # maximum error of a simulated rate
LOG_WITHIN_S = 10.0
HALF_WITHIN_S = 120.0

Engines = tuple[Engine, Engine]


def test_the_rest_of_the_log_is_as_simulated(engines: Engines, tmp_path: Path) -> None:
    each = sum(clients * count for clients, count in CLIENTS.items())
    began = time.monotonic()
    with on_cores_of_their_own(engines), logging_router(engines, tmp_path) as (router, log):
        hits = [sum(engine.state().cache_hits for engine in engines)]
        answers: list[Answer] = []
        for name in ("first", "second"):
            answers += asyncio.run(half(router, name))
            hits.append(sum(engine.state().cache_hits for engine in engines))
        eventually(
            lambda: log.exists() and log.read_bytes().count(b"\n") >= 2 * each,
            LOG_WITHIN_S,
            "every request in the log",
        )
    assert [answer.error for answer in answers] == [""] * 2 * each
    sizes = CoreConfig(max_num_seqs=SLOTS, num_blocks=KV_BLOCKS, block_size=BLOCK_TOKENS)
    found = holdout(log, sizes, replicas=len(engines), policy=POLICY, share=0.5)
    # The log does not have the cached tokens, because these engines do not report them; their
    # counters do.
    prompts = sum(json.loads(line)["prompt_tokens"] for line in log.read_text().splitlines()[each:])
    found.measured["hit rate"] = 100.0 * (hits[2] - hits[1]) / prompts
    rows = compare("the second half of the log", [found.measured], found.simulated)
    print()
    print(report.text(as_truth(found, rows, f"{2 * each} requests", time.monotonic() - began)))
    by_name = {row.name: row for row in rows}
    # Times are reported, not judged: these engines share two cores with everything else.
    for name in ("TTFT p50", "TTFT p99", "TPOT p50"):
        row = by_name[name]
        assert row.measured is not None and row.measured > 0.0, row
        assert row.simulated is not None and 0.0 < row.simulated < inf, row
    for name in ("requests", "output tokens"):  # of one workload, so equal except for the time
        row = by_name[name]
        assert row.measured is not None and row.simulated is not None, name
        assert row.measured / FACTOR <= row.simulated <= row.measured * FACTOR, row
    assert by_name["failed"].simulated == 0


def as_truth(found: Holdout, rows: list[Row], what: str, seconds: float) -> Truth:
    return Truth(
        title="Two real engines, simulated after a fit to the first half of their log",
        when=f"{datetime.now():%Y-%m-%d %H:%M}",
        rows=tuple(rows),
        notes=(f"{what} in {seconds:.0f} s", *found.calibration.report),
    )


# -- the workload ------------------------------------------------------------------------------


def prompts(seed: str) -> Iterator[tuple[str, int]]:
    """Endless (text, output tokens); some begin alike."""
    rng = Random(seed)
    shared = [f"{seed} {n} ".ljust(PREFIX, "abcdefgh"[n]) for n in range(PREFIXES)]
    number = 0
    while True:
        number += 1
        own = f"{seed} question {number} "
        text = rng.choice(shared) + own if rng.random() < SHARING else own
        length = max(rng.randint(*PROMPT), len(text))
        yield text.ljust(length, "qrstuvwxyz"[number % 10]), rng.randint(*OUTPUT)


async def half(router: Hedgerow, seed: str) -> list[Answer]:
    """One client, then two, three and four at once, each with one stream after the other."""
    source = prompts(seed)
    answers: list[Answer] = []
    async with asyncio.timeout(HALF_WITHIN_S):
        for clients, count in CLIENTS.items():
            await asyncio.gather(*(client(router, source, count, answers) for _ in range(clients)))
    return answers


async def client(
    router: Hedgerow, source: Iterator[tuple[str, int]], count: int, answers: list[Answer]
) -> None:
    """The lightweight client of the benches, because the engines need the CPU cores."""
    host, _, port = router.url.removeprefix("http://").rpartition(":")
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(Link, host, int(port))
    for _ in range(count):
        text, tokens = next(source)
        body = json.dumps({**bodies.chat(text, tokens), "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ended: asyncio.Future[None] = loop.create_future()
        link.ask(head.encode() + body, lambda _, ended=ended: ended.set_result(None))
        await ended
        answers.append(link.answer)
    link.close()


# -- environment -----------------------------------------------------------------------------


@contextmanager
def logging_router(engines: Engines, folder: Path) -> Iterator[tuple[Hedgerow, Path]]:
    """A router whose log has small blocks: a token of the tiny model is a byte."""
    log, config = folder / "access.log", folder / "hedgerow.json"
    settings = {"access_log": {"path": str(log), "blocks": 512}, "prefix": {"block_bytes": 64}}
    config.write_text(json.dumps(settings))
    flags = ("--config", str(config), "--policy", POLICY)
    router = Hedgerow([engine.url for engine in engines], folder / "hedgerow.log", *flags)
    try:
        router.start()
        router.wait_until_ready()
        yield router, log
    finally:
        router.kill()
