"""Runs a router as a process: signals, the event loop, the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable

from router.app.lifecycle import App
from router.config.model import Config
from router.core.errors import ConfigError
from router.core.memory import keep_large_blocks
from router.observe import events


def serve(config: Config, read_again: Callable[[], Config], path: str | None = None) -> int:
    """Runs a router until it is stopped. Returns the exit status.

    SIGTERM and SIGINT start a drain, and a second signal stops the router at once. If no client is
    connected, the first SIGINT stops the router at once. SIGHUP reloads the configuration.

    `path`: the file of the configuration, if it has one.

    Raises OSError if an address is not available.
    """
    import uvloop

    keep_large_blocks()
    handler = events.install()
    try:
        return int(uvloop.run(_serve(config, read_again, path)))
    finally:
        events.uninstall(handler)


async def _serve(config: Config, read_again: Callable[[], Config], path: str | None) -> int:
    loop = asyncio.get_running_loop()
    app = App(config, read_again, path=path)
    await app.start()

    def terminate(number: signal.Signals) -> None:
        if app.draining:
            app.drained.set()
        else:
            app.drain(by_hand=number == signal.SIGINT)

    async def reload() -> None:
        try:
            await app.reload()
        except ConfigError:
            # The method `reload` has logged the error, and the old configuration stays in force.
            pass

    tasks: set[asyncio.Task[None]] = set()

    def hang_up() -> None:
        task = asyncio.ensure_future(reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, terminate, number)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    # `gc.freeze` excludes existing objects from garbage collection. The data plane creates few
    # reference cycles, so collections are rarely useful.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    await app.drained.wait()
    await app.stop()
    return 0
