"""Emulated engines in the test's own loop, so that what they were told can be looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from router.emulator.engine import Engine
from router.emulator.http.server import make_app
from router.emulator.settings import EngineSettings

SPEED = 1000.0


class Emulated:
    """One engine and where it listens."""

    def __init__(self, engine: Engine, url: str) -> None:
        self.engine = engine
        self.url = url

    @property
    def told(self) -> list[Any]:
        """What its requests said of their priority, as they said it; None: nothing."""
        return list(self.engine.priorities)


@asynccontextmanager
async def emulated(persona: str, *, port: int = 0, **settings: Any) -> AsyncIterator[Emulated]:
    """An engine of this persona that serves the model `m`, quickly; a port brings one back."""
    chosen = EngineSettings(**{"persona": persona, "models": ("m",), "speed": SPEED, **settings})
    engine = Engine(chosen)
    runner = web.AppRunner(make_app(engine), handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield Emulated(engine, f"http://{host}:{port}")
    finally:
        await runner.cleanup()
        engine.close()
        await asyncio.sleep(0)
