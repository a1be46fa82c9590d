"""Streams of three classes, each of which asks for its estimated time to first token.

The classes alternate in random order, so each has a third of the requests. `saturate` sends them
from a fixed number of clients (closed loop) and measures the rate at which the fleet is saturated.
`arrive` sends them at Poisson arrivals whose rates are shares of a rate (open loop). Must never
judge the results.
"""

import asyncio
from collections.abc import Iterator, Mapping
from random import Random
from typing import Final

from bench.fleet.stream import Answer, Link
from tests.engine.loads.halves import Source, client, poisson

CLASSES: Final = ("high", "normal", "low")
# Share of the answers of a closed loop left out at each end, where clients begin or end.
ENDS: Final = 0.2
_ESTIMATE: Final = b"x-ttft-estimate-ms"


class Estimated:
    """The requests of one run, and their results.

    `source`: prompts and numbers of output tokens.
    """

    def __init__(self, url: str, seed: str, source: Source) -> None:
        self.answers: list[Answer] = []
        self.given = 0  # responses with an estimate in their head
        self._url = url
        self._seed = seed
        self._source = source
        self._classes = _dealt(Random(f"{seed} classes"))

    @property
    def failed(self) -> list[str]:
        return [answer.error for answer in self.answers if answer.error]

    async def saturate(self, clients: int, count: int, within_s: float) -> float:
        """Let `clients` clients send `count` requests each, one after the other.

        Returns the requests per second that ended while all clients were busy. Raises TimeoutError
        after `within_s` seconds, and ValueError if there are too few answers.
        """
        before = len(self.answers)

        async def sequence() -> None:
            for _ in range(count):
                await self.send()

        async with asyncio.timeout(within_s):
            await asyncio.gather(*(sequence() for _ in range(clients)))
        return middle_rate(
            [one.token_times[-1][0] for one in self.answers[before:] if one.token_times]
        )

    async def arrive(self, rate: float, load: Mapping[float, int], within_s: float) -> None:
        """Send requests at Poisson arrivals. `load`: requests by their rate, as shares of `rate`.

        Raises TimeoutError after `within_s` seconds.
        """
        rates = {share * rate: count for share, count in load.items()}
        await poisson(self._seed, rates, self.send, within_s)

    async def send(self) -> None:
        """Send one request, and wait for its answer."""
        fields = f"x-ttft-estimate: true\r\nx-priority: {next(self._classes)}\r\n"
        await client(self._url, self._source, 1, self.answers, fields, lambda: _Link(self))


class _Link(Link):
    """A connection that counts the estimates in the heads of its responses."""

    def __init__(self, owner: Estimated) -> None:
        super().__init__()
        self._owner = owner

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _ESTIMATE:
            self._owner.given += 1


def middle_rate(ended: list[float]) -> float:
    """The events per second between the first and the last `ENDS` of them. `ended`: their times in
    seconds, in any order. Raises ValueError if there are too few.
    """
    times = sorted(ended)
    first, last = int(ENDS * len(times)), int((1.0 - ENDS) * len(times)) - 1
    if last <= first or times[last] <= times[first]:
        raise ValueError(f"{len(times)} answers are too few for a rate")
    return (last - first) / (times[last] - times[first])


def _dealt(rng: Random) -> Iterator[str]:
    """The classes in random order, each once before any occurs again."""
    while True:
        yield from rng.sample(CLASSES, len(CLASSES))
