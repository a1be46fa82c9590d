"""The router with a ticker on its event loop: `python -m tests.abuse.watched FILE serve …`.

FILE is a page of three doubles: the longest CPU time, in seconds, that the loop's thread used
between two ticks since the value was last reset, the number of ticks, and the longest CPU time of
all threads. CPU time is used because on a busy machine every loop also waits for a CPU.
"""

import asyncio
import mmap
import struct
import sys
import time
from collections.abc import Coroutine
from typing import Any

TICK_S = 0.005
PAGE = struct.Struct("ddd")


def main(path: str, *arguments: str) -> int:
    import uvloop

    from router import cli

    with open(path, "r+b") as file:
        page = mmap.mmap(file.fileno(), PAGE.size)
    run = uvloop.run

    def run_with_ticks(work: Coroutine[Any, Any, Any]) -> Any:
        async def ticking() -> Any:
            _tick(asyncio.get_running_loop(), page)
            return await work

        return run(ticking())

    uvloop.run = run_with_ticks
    return cli.main(list(arguments))


def _tick(loop: asyncio.AbstractEventLoop, page: mmap.mmap) -> None:
    before, all_before = time.thread_time(), time.process_time()

    def tick() -> None:
        nonlocal before, all_before
        now, all_now = time.thread_time(), time.process_time()
        longest, ticks, of_all = PAGE.unpack_from(page)
        longest, of_all = max(longest, now - before), max(of_all, all_now - all_before)
        PAGE.pack_into(page, 0, longest, ticks + 1, of_all)
        before, all_before = now, all_now
        loop.call_later(TICK_S, tick)

    loop.call_later(TICK_S, tick)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
