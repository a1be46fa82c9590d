"""The load generator's process: plays a script, and injects faults at their times.

It reads one JSON order per line and answers with one line of JSON. It reads the engines' counters
before the first request and after the last answer, so that copies are counted in the same way for
every router.
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

# Seconds to wait after the last answer, until cancelled copies have left their engines.
SETTLE_S = 0.3


async def states(http: aiohttp.ClientSession, urls: Sequence[str]) -> list[dict[str, Any]]:
    """Read each engine's state: its counters since its start."""

    async def one(url: str) -> dict[str, Any]:
        async with http.get(f"{url}/emulator/state") as answer:
            told: dict[str, Any] = await answer.json()
            return told

    return list(await asyncio.gather(*(one(url) for url in urls)))


async def go_wrong(
    http: aiohttp.ClientSession, urls: Sequence[str], faults: Sequence[dict[str, Any]]
) -> None:
    """Post each fault to its engine at its time, in seconds from now."""
    begin = perf_counter()
    for fault in faults:
        await asyncio.sleep(max(0.0, begin + fault["at"] - perf_counter()))
        chosen = urls if fault["engine"] is None else [urls[fault["engine"] % len(urls)]]
        for url in chosen:
            async with http.post(f"{url}/emulator/faults", json=fault["fault"]) as answer:
                answer.raise_for_status()


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Play the script of an order. The order's fields are script, host, port, model, engines (their
    URLs) and faults (see `traffic.Fault`).
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
