"""The simulator compared with two real engines: fitted to half of a log, judged by the other half.

The figures are printed, and are what this is for: engines, router and clients share a few cores, so
that no size is asserted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from bench.fleet.stream import Answer, Link
from router.cli import main
from tests.engine.loads import bodies
from tests.engine.machine.cores import on_cores_of_their_own
from tests.engine.machine.fleet import BLOCK_TOKENS, KV_BLOCKS, SLOTS, Engine, Hedgerow
from tests.engine.machine.processes import eventually

POLICY = "kv_aware"
# Requests of each client, by the number of concurrent clients; equal in both halves of the log.
CLIENTS = {1: 32, 2: 11, 3: 8, 4: 6}
PROMPT, OUTPUT = (100, 1800), (12, 32)  # tokens, which here are characters
PREFIXES, PREFIX, SHARING = 3, 700, 0.3
LOG_WITHIN_S = 10.0
HALF_WITHIN_S = 120.0

Engines = tuple[Engine, Engine]


def test_the_rest_of_the_log_is_as_simulated(engines: Engines, tmp_path: Path) -> None:
    each = sum(clients * count for clients, count in CLIENTS.items())
    with on_cores_of_their_own(engines), logging_router(engines, tmp_path) as (router, log):
        answers: list[Answer] = []
        for name in ("first", "second"):
            answers += asyncio.run(half(router, name))
        eventually(
            lambda: log.exists() and log.read_bytes().count(b"\n") >= 2 * each,
            LOG_WITHIN_S,
            "every request in the log",
        )
    assert [answer.error for answer in answers] == [""] * 2 * each
    figures = tmp_path / "replay.json"
    kv_tokens = str(KV_BLOCKS * BLOCK_TOKENS)
    words = [str(log), "--policy", POLICY]
    words += ["--calibrate", "--max-num-seqs", str(SLOTS), "--kv-tokens", kv_tokens, "--anyway"]
    assert main(["replay", *words, "--jobs", "1", "--json", str(figures)]) == 0
    content = json.loads(figures.read_text())
    assert content["runs"][0]["replicas"] == len(engines)
    rows = {row["figure"]: row for row in content["truth"]["rows"] if row["part"] == "all"}
    # Times are reported, not judged: these engines share two cores with all else on the machine.
    for name in ("TTFT p50", "TTFT p99", "TPOT p50"):
        assert rows[name]["logged"] > 0.0, rows[name]
        assert rows[name]["simulated"] > 0.0, rows[name]
    assert content["runs"][0]["failed"] == 0


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
