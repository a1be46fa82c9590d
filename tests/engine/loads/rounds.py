"""The same load directly at two engines and through a router that got only their URLs.

The load is measured in rounds: multiples of the number of slots, all requests at once. The answers
are so long that the last request waits a given time in a full engine.

Must never judge the results.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import httpx

from tests.engine.loads import bodies, link as links
from tests.engine.loads.load import CHAT
from tests.engine.machine import environment
from tests.engine.machine.cores import on_cores_of_their_own
from tests.engine.machine.environment import EngineEnvironment
from tests.engine.machine.fleet import SLOTS, Engine, Engines, Hedgerow, configured, running
from tests.engine.machine.processes import eventually

# Requests per slot. The last request waits for all others in its slot, so the time of one request
# is a small part.
ROUNDS = 8
LIGHT_REQUESTS, LIGHT_TOKENS = 12, 8
CALIBRATION_TOKENS = 60
TOKENS_AT_MOST = 1200  # maximum length of an answer; all slots together fit into the KV cache
IDLE_WITHIN_S = 60.0
RUN_WITHIN_S = 600.0
LOG_WITHIN_S = 10.0


@dataclass
class Seen:
    """The results of one run."""

    errors: list[str] = field(default_factory=list)  # one per request; "": it was served
    # Seconds of each stream to its first content.
    waits_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)  # seconds of each request to its end
    # Of streams: when the first content came and when the stream ended, in seconds of one clock.
    spans: list[tuple[float, float]] = field(default_factory=list)
    began: float = 0.0  # when the requests were sent, by the same clock as `spans`
    seconds: float = 0.0  # from sending until all requests had ended
    breakers: list[str] = field(default_factory=list)
    ejections: float = 0.0
    events: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        return [error for error in self.errors if error]

    def slots_in_use(self, slots: int) -> float:
        """Share of `slots` that were generating, from the beginning to the last first content.

        This share measures how well the load was placed, independent of the speed of the machine.
        """
        until = max(first for first, _ in self.spans)
        used = sum(min(end, until) - first for first, end in self.spans)
        return used / (slots * (until - self.began))


# Arguments: URL, number, tokens, results.
Ask = Callable[[str, int, int, Seen], Coroutine[Any, Any, None]]


def sizes(slots: int, tokens: int) -> list[int]:
    """Lengths of all answers in tokens, equal in every run: 0.5 to 1.5 times `tokens`."""
    count = ROUNDS * slots * 2
    rng = Random(count)
    return [int(tokens * rng.uniform(0.5, 1.5)) for _ in range(count)]


def content(number: int) -> str:
    return f"{number} {perf_counter()} ".ljust(100, "x")


async def ask_stream(url: str, number: int, tokens: int, seen: Seen) -> None:
    link = await links.opened(url)
    began = perf_counter()
    answer, ended = links.ask(link, content(number), tokens)
    try:
        await ended.wait()
    finally:
        link.close()
    ended_at = perf_counter()
    seen.errors.append(answer.error)
    seen.took_s.append(ended_at - began)
    if answer.first_at is not None:
        seen.waits_s.append(answer.first_at - began)
        seen.spans.append((answer.first_at, ended_at))


async def ask_whole(url: str, number: int, tokens: int, seen: Seen) -> None:
    asked = bodies.chat(content(number), tokens)
    began = perf_counter()
    async with httpx.AsyncClient(timeout=RUN_WITHIN_S) as http:
        answer = await http.post(f"{url}{CHAT}", json=asked)
    is_served = answer.status_code == 200 and "choices" in answer.json()
    seen.errors.append("" if is_served else f"{answer.status_code} {answer.text}")
    seen.took_s.append(perf_counter() - began)


async def _at_once(urls: Sequence[str], ask: Ask, tokens: Sequence[int], seen: Seen) -> None:
    seen.began = perf_counter()
    async with asyncio.timeout(RUN_WITHIN_S):
        await asyncio.gather(
            *(ask(urls[n % len(urls)], n, size, seen) for n, size in enumerate(tokens))
        )
    seen.seconds = perf_counter() - seen.began


def straight(engines: Engines, ask: Ask, tokens: Sequence[int]) -> Seen:
    """All requests at once, spread over the idle engines in turn."""
    wait_until_idle(engines)
    seen = Seen()
    asyncio.run(_at_once([engine.url for engine in engines], ask, tokens, seen))
    return seen


def routed(
    engines: Engines, ask: Ask, tokens: Sequence[int], folder: Path, *, cold: bool
) -> tuple[Seen, Seen]:
    """The load of `straight` through a fresh router: its results, and those of the light load
    before.

    `cold`: there is no light load, so that the router has seen no request at all.
    """
    wait_until_idle(engines)
    seen, light = Seen(), Seen()
    with _router(engines, folder, seen) as router:
        if not cold:
            for number in range(LIGHT_REQUESTS):
                asyncio.run(ask(router.url, 10_000 + number, LIGHT_TOKENS, light))
        asyncio.run(_at_once([router.url], ask, tokens, seen))
    return seen, light


def wait_until_idle(engines: Engines) -> None:
    for engine in engines:
        engine.wait_until_idle(IDLE_WITHIN_S)


@contextmanager
def _router(engines: Engines, folder: Path, seen: Seen) -> Iterator[Hedgerow]:
    """A fresh router; at the end, its replica states and log messages are recorded."""
    router = Hedgerow([engine.url for engine in engines], folder / "hedgerow.log")
    with running(router):
        yield router
        page = httpx.get(f"{router.admin}/replicas").json()
        seen.breakers = [replica["breaker"] for replica in page]
        metrics = httpx.get(f"{router.admin}/metrics").text.splitlines()
        counts = [line for line in metrics if line.startswith("hedgerow_replica_ejections_total")]
        seen.ejections = sum(float(line.rpartition(" ")[2]) for line in counts)
    written = router.log.read_text(errors="replace").splitlines()
    said = [json.loads(line).get("message") or "" for line in written if line.startswith("{")]
    seen.events = [message for message in said if message.startswith("replica ")]


def calibrated(engines: Engines, slots: int, wait_s: float) -> int:
    """Answer length in tokens with which the last request of all rounds waits `wait_s`."""
    urls = [engine.url for engine in engines]
    took_s = 0.0
    for _ in range(2):  # the first round is a warm-up
        seen = Seen()
        asyncio.run(_at_once(urls, ask_stream, [CALIBRATION_TOKENS] * slots * len(urls), seen))
        took_s = seen.seconds
    return min(TOKENS_AT_MOST, int(wait_s / (ROUNDS - 1) / took_s * CALIBRATION_TOKENS * 1.2))


@contextmanager
def running_pair(
    slots: int, built: EngineEnvironment, logs: Path, *flags: str
) -> Iterator[Engines]:
    """Two running engines of `slots` slots, each on its own core."""
    first = Engine(f"busy-{slots}-a", built, logs, *flags, slots=slots)
    second = Engine(f"busy-{slots}-b", built, logs, *flags, slots=slots)
    with running(first, second), on_cores_of_their_own((first, second)):
        yield first, second


@contextmanager
def logged_pair(folder: Path, log: Path, **access_log: Any) -> Iterator[Hedgerow]:
    """Two new engines behind a router with the shipped configuration, which writes a new log.

    `access_log`: settings of the access log beside its path.
    """
    log.unlink(missing_ok=True)
    built = environment.ensure()
    with running_pair(SLOTS, built, folder, "--enable-prompt-tokens-details") as pair:
        settings = {
            "replicas": [engine.url for engine in pair],
            "access_log": {"path": str(log), **access_log},
            "prefix": {"block_bytes": 64},  # a token of this model is a character
        }
        with configured(settings, folder) as router:
            yield router


def wait_for_lines(log: Path, count: int) -> None:
    """Return when an access log, which may not exist yet, has `count` lines."""
    eventually(
        lambda: log.exists() and log.read_bytes().count(b"\n") >= count,
        LOG_WITHIN_S,
        f"{count} requests in the log",
    )


def described(seen: Seen) -> str:
    waits = sorted(seen.waits_s)
    first = f"p50 {waits[len(waits) // 2]:.1f} s, max {waits[-1]:.1f} s" if waits else "not seen"
    return (
        f"{len(seen.errors)} requests, {len(seen.failed)} failed, {seen.seconds:.1f} s in all, "
        f"first tokens {first}, {seen.ejections:.0f} ejections"
    )
