"""Engines with few slots and many requests, behind a router that got only their URLs.

Every request must be served, no replica ejected and no wait longer than the load explains. Engines
and router are processes with the shipped flags. All cases run at the same time, each with its own
fleet and router, in parallel with the same load directly at the engines: a slow machine slows down
all of them, so that waits are compared, not measured. The waits are longer than the 5 s after which
a first token may be called overdue.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import aiohttp
import msgspec
import pytest

from bench.fleet.stream import Answer, Link, body
from router.app.emulated_fleet import EmulatedFleet
from tests.app.pages import page_at
from tests.faults.process.metrics import scrape
from tests.harness.process import RouterProcess, serving
from tests.harness.running import run_bounded

REPLICAS, SLOTS = 2, 4
ENGINE = ("--profile", "realistic", "--max-num-seqs", str(SLOTS))
MODEL = "emulated"
PATH = "/v1/chat/completions"
# Tokens of an answer, 41 ms each: 0.2 s, 1.7 s and 4.5 s.
LIGHT, MEDIUM, LONG = 4, 40, 110
BEFORE = 12  # number of light requests, sent one after the other
MANY = 8 * REPLICAS * SLOTS  # the last request waits for seven others
FEW = 3 * REPLICAS * SLOTS
NOT_MUCH_LONGER = 1.5  # allowed ratio of a wait to the same wait directly at the engines
LIMIT_S = 300.0


@dataclass
class Seen:
    """The results of one case."""

    errors: list[str] = field(default_factory=list)  # one per request; "": the request was served
    # Seconds of each stream until its first content.
    waits_s: list[float] = field(default_factory=list)
    ejections: float = 0.0
    breakers: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def streamed(self, answer: Answer, began: float) -> None:
        self.errors.append(answer.error)
        if answer.first_at is not None:
            self.waits_s.append(answer.first_at - began)


def messages(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{number} begins like no other " + "x" * 200}]


async def stream(port: int, number: int, tokens: int, seen: Seen) -> None:
    """Send one stream request on its own connection, and record its result."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    _, link = await loop.create_connection(Link, "127.0.0.1", port)
    content = body(MODEL, messages(number), tokens)
    head = f"POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    began = perf_counter()
    link.ask(
        f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content, lambda _: ended.set()
    )
    await ended.wait()
    seen.streamed(link.answer, began)
    link.close()


async def whole(port: int, number: int, tokens: int, seen: Seen) -> None:
    """Request one answer that is not streamed, and record its result."""
    asked = {**msgspec.json.decode(body(MODEL, messages(number), tokens)), "stream": False}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}{PATH}", json=asked) as answer,
    ):
        served = answer.status == 200 and (await answer.json())["choices"][0]["finish_reason"]
        seen.errors.append("" if served else f"status {answer.status}: {await answer.text()}")


async def lightly(port: int, ask: Any, seen: Seen) -> None:
    for number in range(BEFORE):
        await ask(port, 10_000 + number, LIGHT, seen)


async def at_once(ports: Sequence[int], ask: Any, count: int, tokens: int, seen: Seen) -> None:
    """Send all requests at once, spread over the ports in turn."""
    await asyncio.gather(
        *(ask(ports[number % len(ports)], number, tokens, seen) for number in range(count))
    )


@asynccontextmanager
async def engines() -> AsyncIterator[list[str]]:
    fleet = EmulatedFleet(REPLICAS, MODEL, ENGINE)
    try:
        yield await fleet.start()
    finally:
        await fleet.stop()


@asynccontextmanager
async def routed(seen: Seen) -> AsyncIterator[RouterProcess]:
    """A router in front of two engines; at the end, its replica states and messages are
    recorded.
    """
    flags = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    async with engines() as urls:
        for url in urls:
            flags += ["--replica", url]
        async with serving(None, *flags) as router:
            yield router
            page = await page_at(router.admin_port, "/replicas")
            seen.breakers = [replica["breaker"] for replica in page]
            found = await scrape(router.admin_port)
            seen.ejections = sum(
                n for (name, _), n in found.items() if name == "hedgerow_replica_ejections_total"
            )
            seen.events = [event["message"] for event in await router.rest()]


async def straight(seen: Seen) -> None:
    async with engines() as urls:
        ports = [int(url.rpartition(":")[2]) for url in urls]
        await at_once(ports, stream, MANY, MEDIUM, seen)


async def case(seen: Seen, ask: Any, count: int, tokens: int, *, cold: bool) -> None:
    async with routed(seen) as router:
        if not cold:
            await lightly(router.port, ask, seen)
            seen.waits_s.clear()
        await at_once([router.port], ask, count, tokens, seen)


CASES: dict[str, tuple[Any, int, int, bool]] = {
    "many streams after light load": (stream, MANY, MEDIUM, False),
    "many streams at a cold start": (stream, MANY, MEDIUM, True),
    "long streams after short ones": (stream, FEW, LONG, False),
    "long whole answers after short ones": (whole, FEW, LONG, False),
}
MANY_CASES = [name for name, (_, count, _, _) in CASES.items() if count == MANY]
STRAIGHT = "straight at the engines"


@pytest.fixture(scope="module")
def found() -> dict[str, Seen]:
    """The results of each case."""
    all_seen = {name: Seen() for name in (*CASES, STRAIGHT)}

    async def play() -> None:
        await asyncio.gather(
            straight(all_seen[STRAIGHT]),
            *(
                case(all_seen[name], ask, count, tokens, cold=cold)
                for name, (ask, count, tokens, cold) in CASES.items()
            ),
        )

    run_bounded(play, LIMIT_S)
    return all_seen


@pytest.mark.parametrize("name", CASES)
def test_every_request_is_served(found: dict[str, Seen], name: str) -> None:
    _, count, _, cold = CASES[name]
    seen = found[name]
    assert [error for error in seen.errors if error] == []
    assert len(seen.errors) == count + (0 if cold else BEFORE)


@pytest.mark.parametrize("name", CASES)
def test_no_replica_is_suspected_or_ejected(found: dict[str, Seen], name: str) -> None:
    seen = found[name]
    assert seen.ejections == 0
    assert seen.breakers == ["closed"] * REPLICAS
    assert [event for event in seen.events if event.startswith("replica ")] == []


@pytest.mark.parametrize("name", MANY_CASES)
def test_the_longest_wait_is_the_loads(found: dict[str, Seen], name: str) -> None:
    direct = found[STRAIGHT]
    assert not any(direct.errors)
    assert max(found[name].waits_s) <= NOT_MUCH_LONGER * max(direct.waits_s)
