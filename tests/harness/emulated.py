"""Emulated engines in the test's own loop, so that their received priorities can be read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from router.lab.emulator.engine import Engine
from router.lab.emulator.http.ranks import made
from router.lab.emulator.http.server import make_app
from router.lab.emulator.settings import EngineSettings
from tests.harness.ports import free_port

SPEED = 1000.0


class Emulated:
    """One engine and its address."""

    def __init__(self, ranks: list[Engine], url: str) -> None:
        self.engine = ranks[0]
        self.ranks = ranks  # the data-parallel ranks
        self.url = url

    @property
    def told(self) -> list[Any]:
        """Priorities of its requests as received; None: no priority."""
        return list(self.engine.priorities)


@asynccontextmanager
async def emulated(persona: str, *, port: int = 0, **settings: Any) -> AsyncIterator[Emulated]:
    """A fast engine of this persona that serves the model `m`; `port` restarts one at its
    address.
    """
    chosen = EngineSettings(**{"persona": persona, "models": ("m",), "speed": SPEED, **settings})
    ranks = made(Engine(chosen))
    runner = web.AppRunner(
        make_app(ranks[0], ranks[1:]), handler_cancellation=True, access_log=None
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port or free_port())
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield Emulated(ranks, f"http://{host}:{port}")
    finally:
        await runner.cleanup()
        for engine in ranks:
            engine.close()
        await asyncio.sleep(0)
