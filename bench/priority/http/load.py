"""The load generator's process: makes the script, plays it, and runs the closed-loop clients.

One JSON order per line, one JSON line back. An order contains the parameters of the script, not the
script, which would be too large for a pipe.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bench.fleet import engines
from bench.fleet.load import serve
from bench.fleet.player import Player
from bench.fleet.script import Conversation
from bench.priority.http import traffic
from bench.priority.traffic import BUSY


class Clients(Player):
    """A player whose batch and low clients continue until the script ends.

    Each of their requests is a separate conversation. After a refusal, the client sends its next
    request with a short delay.
    """

    _REST_S = 0.2

    async def _converse(self, conversation: Conversation) -> None:
        if conversation.urgency not in BUSY:
            await super()._converse(conversation)
            return
        due = conversation.at
        for said in traffic.work(conversation.key):
            if due >= self._script.until:
                return
            messages = [
                {"role": "system", "content": said.document},
                {"role": "user", "content": said.question},
            ]
            if await self._ask(messages, said.output_tokens, due, conversation) is None:
                await asyncio.sleep(self._REST_S)
            due = self.now()


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Order: seed, warm, measured (seconds), host, port, model, engines (their URLs)."""
    size = traffic.Size(order["warm"], order["measured"])
    script = traffic.script(order["seed"], size)
    urls: list[str] = order["engines"]

    async def count() -> list[dict[str, float]]:
        return list(await asyncio.gather(*(engines.counters(url) for url in urls)))

    return await Clients(script, order["host"], order["port"], order["model"], count).play()


if __name__ == "__main__":
    serve(run)
