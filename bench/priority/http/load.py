"""The load generator's process: generates the script, plays it, and runs closed-loop clients.

It reads one JSON order per line and answers with one line of JSON. An order contains the parameters
of the script, because the script itself would be too large for a pipe.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bench.fleet import engines
from bench.fleet.load import serve
from bench.fleet.player import Player
from bench.fleet.script import Conversation
from bench.priority.http import stage
from bench.priority.traffic import BUSY


class Clients(Player):
    """A player whose clients of the classes batch and low send requests until the script ends.

    Each of these requests is a separate conversation. After a failed request, the client waits
    shortly.
    """

    _REST_S = 0.2

    async def _converse(self, conversation: Conversation) -> None:
        if conversation.urgency not in BUSY:
            await super()._converse(conversation)
            return
        due = conversation.at
        for said in stage.work(conversation.key):
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
    """Run one order. Its fields are seed, warm and measured (seconds), host, port, model, and
    engines (their URLs).
    """
    size = stage.Size(order["warm"], order["measured"])
    script = stage.script(order["seed"], size)
    urls: list[str] = order["engines"]

    async def count() -> list[dict[str, float]]:
        return list(await asyncio.gather(*(engines.counters(url) for url in urls)))

    return await Clients(script, order["host"], order["port"], order["model"], count).play()


if __name__ == "__main__":
    serve(run)
