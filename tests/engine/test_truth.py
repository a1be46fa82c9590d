"""The simulator compared with two real engines: fitted to half of a log, judged by the other half.

The test prints the figures and asserts no size: engines, router and clients share a few cores.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.fleet.stream import Answer
from router.cli import main
from tests.engine.loads.halves import half, total
from tests.engine.machine.cores import on_cores_of_their_own
from tests.engine.machine.fleet import BLOCK_TOKENS, KV_BLOCKS, SLOTS, Engine, Hedgerow
from tests.engine.machine.processes import eventually

POLICY = "kv_aware"
# Requests of each client, by the number of concurrent clients; equal in both halves of the log.
CLIENTS = {1: 32, 2: 11, 3: 8, 4: 6}
LOG_WITHIN_S = 10.0
HALF_WITHIN_S = 120.0

Engines = tuple[Engine, Engine]


def test_the_rest_of_the_log_is_as_simulated(engines: Engines, tmp_path: Path) -> None:
    each = total(CLIENTS)
    with on_cores_of_their_own(engines), logging_router(engines, tmp_path) as (router, log):
        answers: list[Answer] = []
        for name in ("first", "second"):
            answers += asyncio.run(half(router.url, name, CLIENTS, HALF_WITHIN_S))
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
