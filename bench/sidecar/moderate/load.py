"""The load generator's process: one player that sends each request to a router chosen at random.

It reads one JSON order per line and answers with one line of JSON. The turns of a conversation come
to different routers. The choice depends only on the seed and the request, so it is the same in
every run of a setup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from bench.fleet import engines
from bench.fleet.load import serve
from bench.fleet.player import Player
from bench.fleet.script import Conversation, Script
from bench.sidecar.moderate import traffic


def chosen(seed: int, conversation: Conversation, messages: int, routers: int) -> int:
    """Return the number of the router that gets a conversation's request with these messages."""
    return Random(f"deal {seed} {conversation.at!r} {messages}").randrange(routers)


class Dealer(Player):
    """A player that sends requests to several ports."""

    def __init__(
        self,
        script: Script,
        ports: Sequence[int],
        seed: int,
        model: str,
        count: Callable[[], Awaitable[list[dict[str, float]]]],
    ) -> None:
        super().__init__(script, "127.0.0.1", ports[0], model, count)
        self._ports = ports
        self._seed = seed

    def _port_of(self, conversation: Conversation, messages: int) -> int:
        return self._ports[chosen(self._seed, conversation, messages, len(self._ports))]


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Run one order. Its fields are workload, seed, warm and measured (seconds), ports (of the
    routers), model, and engines (their URLs).
    """
    size = traffic.Size(order["warm"], order["measured"])
    seed: int = order["seed"]
    script = traffic.script(order["workload"], seed, size)
    urls: list[str] = order["engines"]

    async def count() -> list[dict[str, float]]:
        return list(await asyncio.gather(*(engines.counters(url) for url in urls)))

    return await Dealer(script, order["ports"], seed, order["model"], count).play()


if __name__ == "__main__":
    serve(run)
