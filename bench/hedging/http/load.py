"""The load generator's process: plays a script, and injects faults at their times.

One JSON order per line, one JSON line back. The engines' own counters are read before the first
request and after the last answer, so that every router is counted alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import aiohttp
import msgspec

from bench.fleet.load import serve
from bench.fleet.player import Player
from bench.fleet.script import Script

SETTLE_S = 0.3  # seconds after the last answer, in which cancelled copies leave their engines


async def states(http: aiohttp.ClientSession, urls: Sequence[str]) -> list[dict[str, Any]]:
    """The counters of each engine's core since the engine's start."""

    async def one(url: str) -> dict[str, Any]:
        async with http.get(f"{url}/emulator/state") as answer:
            told: dict[str, Any] = await answer.json()
            return told

    return list(await asyncio.gather(*(one(url) for url in urls)))


async def go_wrong(
    http: aiohttp.ClientSession, urls: Sequence[str], faults: Sequence[dict[str, Any]]
) -> None:
    """Inject each fault at its time, in seconds from now."""
    begin = perf_counter()
    for fault in faults:
        await asyncio.sleep(max(0.0, begin + fault["at"] - perf_counter()))
        chosen = urls if fault["engine"] is None else [urls[fault["engine"] % len(urls)]]
        for url in chosen:
            async with http.post(f"{url}/emulator/faults", json=fault["fault"]) as answer:
                answer.raise_for_status()


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Run one order: script, host, port, model, engines (their URLs), faults
    (`scenarios.Fault`).
    """
    script = msgspec.convert(order["script"], Script)
    urls: list[str] = order["engines"]
    async with aiohttp.ClientSession() as http:

        async def uncounted() -> list[dict[str, float]]:
            return []

        player = Player(script, order["host"], order["port"], order["model"], uncounted)
        before = await states(http, urls)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(go_wrong(http, urls, order["faults"]))
            playing = tasks.create_task(player.play())
        await asyncio.sleep(SETTLE_S)
        return {"played": playing.result(), "before": before, "after": await states(http, urls)}


if __name__ == "__main__":
    serve(run)
