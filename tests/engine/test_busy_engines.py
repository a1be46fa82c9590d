"""Two engines with few slots and many requests, behind a router that was given their URLs.

A request that waits long because the slots are full says nothing about its engine: all must be
served, none may be suspected or ejected, and no first token may be much later than the same load
makes it straight at the engines. The load is measured in rounds: so many times the slots at once,
each as long as it takes for the last to wait `WAIT_S`.

Engines with other slots than the folder's own run for this module only, one pair after the other.
With `HEDGEROW_BUSY_WAIT_S` in the environment, the last stream waits that long, and each pair is
asked in every way; without it, in two ways, which take five minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import httpx
import pytest

from bench.fleet.stream import Link
from tests.engine import bodies, environment
from tests.engine.cores import on_cores_of_their_own
from tests.engine.fleet import Engine, Hedgerow
from tests.engine.load import CHAT

IN_EVERY_WAY = "HEDGEROW_BUSY_WAIT_S" in os.environ
WAIT_S = float(os.environ.get("HEDGEROW_BUSY_WAIT_S", "20"))  # of the last stream, at least
ROUNDS = 8  # requests for each slot; the last waits for the others, and one is a small part of that
LIGHT_REQUESTS, LIGHT_TOKENS = 12, 8
CALIBRATION_TOKENS = 60
NOT_LATER = 1.2  # the longest wait, straight at the engines
TOKENS_AT_MOST = 1200  # of an answer; all slots together fit into the KV cache
IDLE_WITHIN_S = 60.0
RUN_WITHIN_S = 600.0

Engines = tuple[Engine, Engine]


@dataclass
class Seen:
    """What one run came to."""

    errors: list[str] = field(default_factory=list)  # "" where a request was served
    waits_s: list[float] = field(default_factory=list)  # of streams, to their first content
    breakers: list[str] = field(default_factory=list)
    ejections: float = 0.0
    events: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Pair:
    """Two running engines of so many slots, and how many tokens a round is."""

    engines: Engines
    slots: int
    tokens: int
    direct: Seen  # the same load, straight at them

    @property
    def count(self) -> int:
        return ROUNDS * self.slots * len(self.engines)


def sizes(count: int, tokens: int) -> list[int]:
    """The same in every run: half to one and a half times as long."""
    rng = Random(count)
    return [int(tokens * rng.uniform(0.5, 1.5)) for _ in range(count)]


def content(number: int, tokens: int, *, stream: bool) -> bytes:
    text = f"{number} {perf_counter()} ".ljust(100, "x")
    return json.dumps({**bodies.chat(text, tokens), "stream": stream}).encode()


async def ask_stream(url: str, number: int, tokens: int, seen: Seen) -> None:
    host, _, port = url.removeprefix("http://").rpartition(":")
    _, link = await asyncio.get_running_loop().create_connection(Link, host, int(port))
    ended = asyncio.Event()
    asked = content(number, tokens, stream=True)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    began = perf_counter()
    link.ask(f"{head}Content-Length: {len(asked)}\r\n\r\n".encode() + asked, lambda _: ended.set())
    try:
        await ended.wait()
    finally:
        link.close()
    seen.errors.append(link.answer.error)
    if link.answer.first_at is not None:
        seen.waits_s.append(link.answer.first_at - began)


async def ask_whole(url: str, number: int, tokens: int, seen: Seen) -> None:
    asked = content(number, tokens, stream=False)
    lines = {"content-type": "application/json"}
    async with httpx.AsyncClient(timeout=RUN_WITHIN_S) as http:
        answer = await http.post(f"{url}{CHAT}", content=asked, headers=lines)
    is_served = answer.status_code == 200 and "choices" in answer.json()
    seen.errors.append("" if is_served else f"{answer.status_code} {answer.text}")


async def at_once(urls: Sequence[str], ask: Any, tokens: Sequence[int], seen: Seen) -> None:
    """All of these requests, spread over the URLs in turn."""
    async with asyncio.timeout(RUN_WITHIN_S):
        await asyncio.gather(
            *(ask(urls[n % len(urls)], n, size, seen) for n, size in enumerate(tokens))
        )


def calibrated(engines: Engines, slots: int) -> int:
    """Tokens of an answer with which the last of all rounds waits `WAIT_S` in a full engine."""
    urls = [engine.url for engine in engines]
    took_s = 0.0
    for _ in range(2):  # the first one warms up
        began = perf_counter()
        asyncio.run(at_once(urls, ask_stream, [CALIBRATION_TOKENS] * slots * len(urls), Seen()))
        took_s = perf_counter() - began
    return min(TOKENS_AT_MOST, int(WAIT_S / (ROUNDS - 1) / took_s * CALIBRATION_TOKENS * 1.2))


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    slots: int = request.param
    built, logs = environment.ensure(), tmp_path_factory.mktemp(f"slots-{slots}")
    first = Engine(f"busy-{slots}-a", built, logs, slots=slots)
    second = Engine(f"busy-{slots}-b", built, logs, slots=slots)
    with ExitStack() as stack:
        for engine in (first, second):
            stack.callback(engine.kill)
            engine.start()
        for engine in (first, second):
            engine.wait_until_ready()
        engines = first, second
        stack.enter_context(on_cores_of_their_own(engines))
        tokens = calibrated(engines, slots)
        direct = Seen()
        urls = [engine.url for engine in engines]
        count = ROUNDS * slots * len(engines)
        asyncio.run(at_once(urls, ask_stream, sizes(count, tokens), direct))
        print(f"\n{slots} slots, {tokens} tokens; direct: {described(direct)}")
        yield Pair(engines, slots, tokens, direct)


@contextmanager
def routed(pair: Pair, folder: Path, seen: Seen) -> Iterator[Hedgerow]:
    """A fresh router before idle engines; in the end, what it thinks of them and has said."""
    for engine in pair.engines:
        engine.wait_until_idle(IDLE_WITHIN_S)
    router = Hedgerow([engine.url for engine in pair.engines], folder / "hedgerow.log")
    with ExitStack() as stack:
        stack.callback(router.kill)
        router.start()
        router.wait_until_ready()
        yield router
        page = httpx.get(f"{router.admin}/replicas").json()
        seen.breakers = [replica["breaker"] for replica in page]
        metrics = httpx.get(f"{router.admin}/metrics").text.splitlines()
        counts = [line for line in metrics if line.startswith("hedgerow_replica_ejections_total")]
        seen.ejections = sum(float(line.rpartition(" ")[2]) for line in counts)
    written = router.log.read_text(errors="replace").splitlines()
    said = [json.loads(line).get("message") or "" for line in written if line.startswith("{")]
    seen.events = [message for message in said if message.startswith("replica ")]


def described(seen: Seen) -> str:
    waits = sorted(seen.waits_s)
    failed = sum(map(bool, seen.errors))
    first = f"p50 {waits[len(waits) // 2]:.1f} s, max {waits[-1]:.1f} s" if waits else "not seen"
    return (
        f"{len(seen.errors)} requests, {failed} failed, first tokens {first}, "
        f"{seen.ejections:.0f} ejections"
    )


COLD, WARM = "cold", "after light load"
STREAMS, WHOLE = "streams", "whole answers"
WAYS = [(2, STREAMS, COLD), (2, STREAMS, WARM), (4, STREAMS, WARM), (4, WHOLE, WARM)]
if IN_EVERY_WAY:
    WAYS = [(n, kind, start) for n in (2, 4) for kind in (STREAMS, WHOLE) for start in (COLD, WARM)]


@pytest.mark.parametrize(("pair", "kind", "start"), WAYS, indirect=["pair"], scope="module")
def test_all_are_served_in_time_and_no_engine_is_blamed(
    pair: Pair, kind: str, start: str, tmp_path: Path
) -> None:
    ask = ask_stream if kind == STREAMS else ask_whole
    seen, light = Seen(), Seen()
    with routed(pair, tmp_path, seen) as router:
        if start == WARM:
            for number in range(LIGHT_REQUESTS):
                asyncio.run(ask(router.url, 10_000 + number, LIGHT_TOKENS, light))
        asyncio.run(at_once([router.url], ask, sizes(pair.count, pair.tokens), seen))
    print(f"\n{pair.slots} slots, {kind}, {start}: {described(seen)}")
    assert [error for error in (*light.errors, *seen.errors) if error] == []
    assert len(seen.errors) == pair.count
    assert seen.ejections == 0
    assert seen.breakers == ["closed", "closed"]
    assert seen.events == []
    if seen.waits_s:
        assert not any(pair.direct.errors)
        assert max(seen.waits_s) <= NOT_LATER * max(pair.direct.waits_s)
