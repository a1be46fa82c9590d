"""Measures the CPU time of parts of the router in memory. `parts` lists them, `works` runs them.

The part `internal` is the router's own share of a request, as the router Bifrost defines it: the
check of the request head, and everything from the complete request to the first write to the
replica. As in Bifrost's figure, it does not include sockets, reading HTTP, decoding JSON (which is
measured alone and subtracted) and the response.

The module runs as a separate process (`python -m bench.overhead.internal`), so that it can be
pinned to a CPU.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, cast

import uvloop

from bench.overhead.memory import Router
from bench.overhead.works import WORKS, Clock, with_sums
from router.intake.body import read_fields
from router.lab.overhead import shapes
from router.lab.overhead.processes import Orderly
from router.wire.client import Handler
from router.wire.http1.heads import RequestHead

BLOCK = 500  # operations in a block; a figure is the median of the means of the blocks


class Timed(Handler):
    """The router's request handler, with a clock around the two calls before the write to the
    replica.
    """

    def __init__(self, inner: Handler) -> None:
        self.began = 0.0
        self.head_s = 0.0  # seconds for the check of the current request's head
        self.written_at = 0.0
        self._inner = inner

    def check_head(self, *args: Any) -> None:
        began = perf_counter()
        self._inner.check_head(*args)
        self.head_s = perf_counter() - began
        self.written_at = 0.0

    def start(self, *args: Any) -> None:
        self.began = perf_counter()
        self._inner.start(*args)

    def hand_over(self, *args: Any) -> None:
        raise NotImplementedError

    def relieve(self, *args: Any) -> bool:
        raise NotImplementedError

    def refused(self, client: object, head: object, err: BaseException) -> str:
        raise err

    def log_defect(self, err: BaseException) -> None:
        raise err


class Inside:
    """Measures the part `internal`."""

    def __init__(self, folder: Path) -> None:
        self._timed: Timed | None = None
        self._router = Router(folder, wrap=self._wrapped, written=self._written)
        self._prompt = shapes.Prompt("127.0.0.1:8080")
        self.decode_us = 0.0

    def _wrapped(self, handler: Handler) -> Handler:
        self._timed = Timed(handler)
        return cast(Handler, self._timed)

    def _written(self) -> None:
        assert self._timed is not None
        self._timed.written_at = perf_counter()

    async def block(self, count: int) -> float:
        """Return the mean µs of a request, without the decoding of its JSON."""
        timed = self._timed
        assert timed is not None
        spent = 0.0
        for _ in range(count):
            await self._router.one(self._prompt.next())
            spent += timed.head_s + timed.written_at - timed.began
        self.decode_us = self._decode(self._prompt.next().partition(b"\r\n\r\n")[2], count)
        return spent / count * 1e6 - self.decode_us

    def _decode(self, body: bytes, count: int) -> float:
        head = RequestHead()
        head.method = b"POST"
        head.target = b"/v1/chat/completions"
        self._router.dispatcher.check_head(head)
        route = head.route[0]
        pieces = [body]
        began = perf_counter()
        for _ in range(count):
            read_fields(route, pieces, len(body), b"application/json", None)
        return (perf_counter() - began) / count * 1e6


async def take(blocks: int) -> dict[str, float]:
    """Return the µs of every part: the median over the blocks, after two warm-up blocks."""
    found: dict[str, list[float]] = {name: [] for name in ("internal", *WORKS)}
    with tempfile.TemporaryDirectory(prefix="hedgerow-bench-") as name:
        folder, clock = Path(name), Clock()
        inside = Inside(folder)
        works = {part: await prepare(folder) for part, prepare in WORKS.items()}
        gc.freeze()
        for block in range(blocks + 2):
            costs = {"internal": await inside.block(BLOCK)}
            for part, work in works.items():
                costs[part] = await work(clock, BLOCK)
            if block > 1:
                for part, cost in costs.items():
                    found[part].append(cost)
    return with_sums({part: median(costs) for part, costs in found.items()})


def measure(cpus: Iterable[int] = (), blocks: int = 20) -> tuple[dict[str, float], str]:
    """Measure the CPU time of each part of `parts.py`, in a process that runs on `cpus`.

    Returns the µs of each part, or an empty dictionary and the reason.
    """
    try:
        with Orderly("bench.overhead.internal", str(blocks), cpus=cpus) as process:
            return process.read(), ""
    except RuntimeError as error:
        return {}, str(error)


def main() -> None:
    found = uvloop.run(take(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
