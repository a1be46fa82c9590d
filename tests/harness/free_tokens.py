"""Ways in which a tenant may try to get tokens that are not counted.

Each way sends requests to a router whose replica merges several tokens into an event. The engine's
own totals and the router's counts for the tenant are compared for each way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.harness.messages import post_json

OUTPUT: Final = 160  # tokens of each answer
AT_ONCE: Final = 4  # requests of one way
CROWD: Final = 12  # requests at once that spend a budget
CROWDS: Final = 6
TEACHING: Final = 2
WITHIN_S: Final = 60.0
# The limits of the counted share of the engine's totals: of each way, and of all ways together.
LEAST: Final = 0.9
TOLERANCE: Final = 0.05

CHAT: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to hide tokens. `leaves_at`: the share of the answer after which the client leaves."""

    name: str
    options: Any = None  # `stream_options`
    stream: Any = True
    raw: str = ""  # more members, as JSON text
    padding: int = 0  # bytes of a further member
    leaves_at: float = 1.0
    path: str = CHAT


TEACHES: Final = Way("teaches")
NOT_ASKED: Final = {"include_usage": False}
WAYS: Final = (
    Way("no options"),
    *(Way(f"include_usage {value!r}", {"include_usage": value}) for value in (0, 0.0, "off", "N")),
    Way("include_usage in long options", {**NOT_ASKED, "x": "x" * 5_000}),
    Way("include_usage in very long options", {**NOT_ASKED, "x": "x" * 80_000}),
    Way("an odd continuous_usage_stats", {**NOT_ASKED, "continuous_usage_stats": 1}),
    *(Way(f"stream {value!r}", NOT_ASKED, stream=value) for value in (1, "true", "ON", 1.0)),
    Way("an escaped name", raw='"stream_\\u006fptions": {"include_usage": false}'),
    Way("a name in another object", NOT_ASKED, raw='"x": {"stream_options": [0, 1]}'),
    Way("a body that is not decoded", NOT_ASKED, padding=1_100_000),
    Way("a completion", NOT_ASKED, path="/v1/completions"),
    Way("leaves before the last token", leaves_at=0.95),
    Way("leaves in the middle", leaves_at=0.5),
    Way("leaves at the first token", leaves_at=0.0),
)


@dataclass(frozen=True, slots=True)
class Totals:
    prompt: int
    output: int

    @property
    def sum(self) -> int:
        return self.prompt + self.output

    def since(self, before: Totals) -> Totals:
        return Totals(self.prompt - before.prompt, self.output - before.output)


@dataclass(frozen=True, slots=True)
class Result:
    way: str
    engine: Totals
    counted: Totals

    @property
    def share(self) -> float:
        return self.counted.sum / self.engine.sum if self.engine.sum else 1.0

    def __str__(self) -> str:
        return (
            f"{self.way}: {self.share:.3f} counted "
            f"(prompt {self.counted.prompt} of {self.engine.prompt}, "
            f"output {self.counted.output} of {self.engine.output})"
        )


def body_of(way: Way, model: str, number: int) -> bytes:
    prompt = f"{way.name}, {number}: " + "tell me the story of the old lighthouse again. " * 16
    members: dict[str, Any] = {"model": model, "stream": way.stream}
    limits = {"max_tokens": OUTPUT, "ignore_eos": True, "temperature": 0}
    if way.path == CHAT:
        members["messages"] = [{"role": "user", "content": prompt}]
    else:
        members["prompt"] = prompt
    if way.padding:
        members["metadata"] = "x" * way.padding
    if way.options is not None:
        members["stream_options"] = way.options
    text = json.dumps({**members, **limits})
    return (text[:-1] + (f", {way.raw}" if way.raw else "") + "}").encode()


async def ask(port: int, way: Way, header: str, body: bytes, interval: int) -> int:
    """Send a request, and leave when the way says so. Returns the number of events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(post_json(way.path, body, header))
        # One event has the role, one the first token.
        wanted = 2 + int(way.leaves_at * (OUTPUT - 1) / interval)
        events = 0
        async with asyncio.timeout(WITHIN_S):
            while True:
                line = await reader.readline()
                if not line or line.startswith(b"data: [DONE]"):
                    return events
                if line.startswith(b"HTTP/1.1 4"):
                    return 0  # The engine refuses the way.
                events += line.startswith(b"data:")
                if way.leaves_at < 1.0 and events >= wanted:
                    return events
    finally:
        writer.transport.abort()


async def judged(
    way: Way,
    port: int,
    header: str,
    model: str,
    interval: int,
    engine: Callable[[], Awaitable[Totals]],
    counted: Callable[[], Awaitable[Totals]],
) -> Result:
    """Try one way. `engine` and `counted` return totals after all requests have ended."""
    before = await engine(), await counted()
    bodies = [body_of(way, model, number) for number in range(AT_ONCE)]
    await asyncio.gather(*(ask(port, way, header, body, interval) for body in bodies))
    after = await engine(), await counted()
    return Result(way.name, after[0].since(before[0]), after[1].since(before[1]))


async def spend(
    port: int, way: Way, header: str, model: str, interval: int, token_bytes: int
) -> int:
    """Send crowds of requests until nothing is left of a budget. Returns the most tokens of one.

    The first crowds teach the router the bytes of a token. `token_bytes`: the true number.
    """
    taught = [body_of(TEACHES, model, number) for number in range(CROWD)]
    for _ in range(TEACHING):
        await asyncio.gather(*(ask(port, TEACHES, header, body, interval) for body in taught))
    bodies = [body_of(way, model, number) for number in range(CROWD)]
    for _ in range(CROWDS):
        await asyncio.gather(*(ask(port, way, header, body, interval) for body in bodies))
    return len(bodies[0]) // token_bytes + OUTPUT


def problems(results: list[Result]) -> list[str]:
    """The goals that were missed."""
    found = [str(result) for result in results if result.share < LEAST]
    engine = sum(result.engine.sum for result in results)
    counted = sum(result.counted.sum for result in results)
    if abs(counted / engine - 1.0) > TOLERANCE:
        found.append(f"all ways: {counted} counted of {engine}")
    return found
