"""The load generator's process: the clients of all routers, in one process.

It reads one JSON order per line and answers with one line of JSON. Each conversation and each
closed-loop client belongs to one router, chosen at random by the seed. So the same requests come in
every setup, and only the router differs.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from bench.fleet import engines
from bench.fleet.load import serve
from bench.fleet.script import Conversation, Script
from bench.priority.http import stage
from bench.priority.http.load import Clients


def dealt(script: Script, routers: int, seed: int) -> list[Script]:
    """Return the part of each router."""
    rng = Random(f"deal {seed}")
    parts: list[list[Conversation]] = [[] for _ in range(routers)]
    for conversation in script.conversations:
        parts[int(rng.random() * routers)].append(conversation)
    return [Script(tuple(part), script.measure_from, script.until) for part in parts]


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Run one order. Its fields are seed, warm and measured (seconds), ports (of the routers),
    model, and engines (their URLs).

    Returns the result of `Player.play`, with the records of all routers.
    """
    size = stage.Size(order["warm"], order["measured"])
    ports: list[int] = order["ports"]
    urls: list[str] = order["engines"]

    async def count() -> list[dict[str, float]]:
        return list(await asyncio.gather(*(engines.counters(url) for url in urls)))

    scripts = dealt(stage.script(order["seed"], size), len(ports), order["seed"])
    played = await asyncio.gather(
        *(
            Clients(script, "127.0.0.1", port, order["model"], count).play()
            for script, port in zip(scripts, ports, strict=True)
        )
    )
    whole: dict[str, Any] = max(played, key=lambda one: len(one["records"]))
    return {
        **whole,
        "records": [record for one in played for record in one["records"]],
        "tokens_in_window": sum(one["tokens_in_window"] for one in played),
    }


if __name__ == "__main__":
    serve(run)
