"""The load of a log whose first half calibrates an engine model and whose second half judges it.

Streams of prompts of any length, some of which share a prefix, at Poisson arrivals of growing
rates, as the users of a service send them (open loop). Both halves have other prompts and the same
distributions. Must never judge the results.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from random import Random
from typing import Any

from bench.fleet.stream import Answer, Link
from tests.engine.loads.link import ask, opened

# Prompt and output lengths in tokens, which here are characters.
PROMPT, OUTPUT = (100, 1800), (12, 32)
PREFIXES, PREFIX, SHARING = 3, 700, 0.3

Source = Iterator[tuple[str, int]]


def prompts(seed: str) -> Source:
    """Endless pairs of prompt text and number of output tokens; some prompts share a prefix."""
    rng = Random(seed)
    shared = [f"{seed} {n} ".ljust(PREFIX, "abcdefgh"[n]) for n in range(PREFIXES)]
    number = 0
    while True:
        number += 1
        own = f"{seed} question {number} "
        text = rng.choice(shared) + own if rng.random() < SHARING else own
        length = max(rng.randint(*PROMPT), len(text))
        yield text.ljust(length, "qrstuvwxyz"[number % 10]), rng.randint(*OUTPUT)


async def open_load(
    url: str, seed: str, load: Mapping[float, int], within_s: float
) -> list[Answer]:
    """Poisson arrivals, each on a connection of its own. `load`: requests by their rate per second.

    Raises TimeoutError after `within_s` seconds.
    """
    source = prompts(seed)
    answers: list[Answer] = []
    await poisson(seed, load, lambda: client(url, source, 1, answers), within_s)
    return answers


async def poisson(
    seed: str,
    load: Mapping[float, int],
    send: Callable[[], Coroutine[Any, Any, None]],
    within_s: float,
) -> None:
    """Call `send` at Poisson arrivals, and wait for all results. `load`: calls by their rate per
    second.

    Raises TimeoutError after `within_s` seconds.
    """
    gaps = Random(f"{seed} gaps")
    loop = asyncio.get_running_loop()
    due = loop.time()
    async with asyncio.timeout(within_s), asyncio.TaskGroup() as group:
        for rate, count in load.items():
            for _ in range(count):
                due += gaps.expovariate(rate)
                await asyncio.sleep(due - loop.time())
                group.create_task(send())


async def client(
    url: str,
    source: Source,
    count: int,
    answers: list[Answer],
    fields: str = "",
    make: Callable[[], Link] = Link,
) -> None:
    """Send `count` requests over one connection, one after the other."""
    link = await opened(url, make)
    for _ in range(count):
        answer, ended = ask(link, *next(source), fields)
        await ended.wait()
        answers.append(answer)
    link.close()
