"""The load generator's process: answers each order, a line of JSON, with a line of JSON.

An order contains the requests to send (a script), the router's address, and the engines' URLs. The
engines' counters are read at the start of the measured time and after the last answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import uvloop

from bench.fleet import engines
from bench.fleet.player import Player
from bench.fleet.script import Script


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Play the script of an order: fields script, host, port, model and engines (their URLs)."""
    script = msgspec.convert(order["script"], Script)
    urls: list[str] = order["engines"]

    async def count() -> list[dict[str, float]]:
        return list(await asyncio.gather(*(engines.counters(url) for url in urls)))

    return await Player(script, order["host"], order["port"], order["model"], count).play()


def serve(answer: Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]) -> None:
    """Read orders from standard input, and write one answer for each to standard output."""
    # Use our own buffered writer. With PYTHONUNBUFFERED set, `print` loses the bytes that the pipe
    # did not accept in one write, and an answer is longer than a pipe's buffer.
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        for line in sys.stdin:
            out.write(json.dumps(uvloop.run(answer(json.loads(line)))).encode() + b"\n")
            out.flush()


if __name__ == "__main__":
    serve(run)
