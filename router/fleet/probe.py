"""Asks replicas how they are, and what they serve: one task per replica, over its own connections.

Probes never share the data plane's connections, so a replica that hangs on /health delays nobody.
The first round runs before the router listens, so that it starts with the truth.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

from router.config.model import Config
from router.fleet.replica import Replica
from router.fleet.table import Fleet

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client import _RequestContextManager

_MODELS_BYTES = 4 * 1024 * 1024


class Prober:
    """The probes of a whole fleet."""

    def __init__(
        self,
        fleet: Fleet,
        config: Config,
        token: str | None,
        tls: ssl.SSLContext | None,
        rng: Random,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._fleet = fleet
        self.adopt(config, token, tls)
        self._rng = rng
        self._on_error = on_error
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None

    def adopt(self, config: Config, token: str | None, tls: ssl.SSLContext | None) -> None:
        """New settings from a reload, for the probes to come."""
        self._rules = config.health
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._tls: ssl.SSLContext | bool = tls or True
        self._server_name = config.upstream.server_name

    async def start(self) -> None:
        """Probe every replica once, at the same time, then keep on probing."""
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        replicas = list(self._fleet.replicas.values())
        # A replica that does not answer quickly must not delay the start: it is probed again.
        first = [asyncio.ensure_future(self._once(replica, first=True)) for replica in replicas]
        try:
            if first:
                await asyncio.wait(first, timeout=min(2.0, self._rules.timeout_s))
        finally:
            for task in first:
                task.cancel()
            await asyncio.gather(*first, return_exceptions=True)
        for replica in replicas:
            self.watch(replica)

    def watch(self, replica: Replica) -> None:
        """Probe a replica from now on."""
        task = asyncio.ensure_future(self._watch(replica))
        self._tasks[replica] = task
        task.add_done_callback(lambda _: self._tasks.pop(replica, None))

    def unwatch(self, replica: Replica) -> None:
        task = self._tasks.get(replica)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    @property
    def running(self) -> int:
        return len(self._tasks)

    async def _watch(self, replica: Replica) -> None:
        next_models = 0.0
        if replica.objects:
            next_models = monotonic() + self._rules.models_interval_s
        while True:
            await asyncio.sleep(self._pause(replica))
            try:
                was_up = replica.health.up
                good = await self._is_well(replica)
                if good and (monotonic() >= next_models or not was_up):
                    await self._read_models(replica)
                    next_models = monotonic() + self._rules.models_interval_s
                self._fleet.probed(replica, good)
            except Exception as err:
                self._on_error(err)

    def _pause(self, replica: Replica) -> float:
        pause = self._rules.interval_s * self._rng.uniform(0.8, 1.2)
        # One that has just begun to fail is asked sooner.
        return pause if replica.health.probe_streak >= 0 else min(pause, 1.0)

    async def _once(self, replica: Replica, *, first: bool = False) -> None:
        good = await self._is_well(replica)
        if good:
            await self._read_models(replica)
        elif first:
            # Nothing speaks for it yet: one failure is enough before the first request.
            for _ in range(self._rules.fall - 1):
                self._fleet.probed(replica, False)
        self._fleet.probed(replica, good)

    async def _is_well(self, replica: Replica) -> bool:
        path = self._rules.path
        status = await self._status(replica, path or "/health")
        if path is None and status in (404, 405, 501):
            status = await self._status(replica, "/v1/models")
        return 0 < status < 500 if path is None else 200 <= status < 400

    async def _status(self, replica: Replica, path: str) -> int:
        """The status of a GET, 0 if there is none."""
        import aiohttp

        try:
            async with self._get(replica, path) as response:
                return response.status
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return 0

    async def _read_models(self, replica: Replica) -> None:
        """Learn /v1/models; an engine without it may serve anything."""
        import aiohttp
        import msgspec

        try:
            async with self._get(replica, "/v1/models") as response:
                if response.status != 200:
                    return
                raw = await response.content.read(_MODELS_BYTES)
                while not response.content.at_eof() and len(raw) < _MODELS_BYTES:
                    raw += await response.content.read(_MODELS_BYTES - len(raw))
            answer: Any = msgspec.json.decode(raw)
            entries = answer["data"]
            objects = {e["id"]: e for e in entries if isinstance(e.get("id"), str)}
        except (
            aiohttp.ClientError,
            OSError,
            TimeoutError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ):
            return
        if objects:
            self._fleet.learned(replica, objects)

    def _get(self, replica: Replica, path: str) -> _RequestContextManager:
        import aiohttp

        assert self._session is not None
        return self._session.get(
            replica.config.url.rstrip("/") + path,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=self._rules.timeout_s),
            allow_redirects=False,
            ssl=self._tls,
            server_hostname=self._server_name if replica.address.is_tls else None,
        )
