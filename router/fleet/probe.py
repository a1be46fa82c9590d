"""Asks replicas how they are, and what they serve: one task per replica, over its own connections.

Probes never share the data plane's connections, so a replica that hangs on /health delays nobody.
The first round runs before the router listens, so that it starts with the truth. Which path tells
the health, and how long it may take, is the engine's (SGLang's /health generates a token); what a
replica serves says in most cases which engine it is.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Final

from router.config.model import Config
from router.fleet.ask import Asker, NoAnswer
from router.fleet.engines.base import Check, Engine
from router.fleet.engines.detect import ENGINES, detect
from router.fleet.engines.models import CONTEXT, Entries, context_tokens, owners, read_models
from router.fleet.replica import Replica
from router.fleet.table import Fleet

_MODELS_BYTES: Final = 4 * 1024 * 1024
_FACTS_BYTES: Final = 1024 * 1024
# Who has no path for it is alive if it lists its models.
_MODELS_CHECK: Final = Check("/v1/models")


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
        self._asker = Asker(config, token, tls)
        self._rules = config.health
        self._rng = rng
        self._on_error = on_error
        self._tasks: dict[Replica, asyncio.Task[None]] = {}

    def adopt(self, config: Config, token: str | None, tls: ssl.SSLContext | None) -> None:
        """New settings from a reload, for the probes to come."""
        self._rules = config.health
        self._asker.adopt(config, token, tls)

    async def start(self) -> None:
        """Probe every replica once, at the same time, then keep on probing."""
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
        await self._asker.close()

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
                entries: Entries = {}
                if good and (monotonic() >= next_models or not was_up):
                    entries = await self._read_models(replica)
                    next_models = monotonic() + self._rules.models_interval_s
                self._fleet.probed(replica, good)
                await self._learn_context(replica, entries)
            except Exception as err:
                self._on_error(err)

    def _pause(self, replica: Replica) -> float:
        pause = self._rules.interval_s * self._rng.uniform(0.8, 1.2)
        # One that has just begun to fail is asked sooner.
        return pause if replica.health.probe_streak >= 0 else min(pause, 1.0)

    async def _once(self, replica: Replica, *, first: bool = False) -> None:
        good = await self._is_well(replica)
        entries: Entries = {}
        if good:
            entries = await self._read_models(replica)
        elif first:
            # Nothing speaks for it yet: one failure is enough before the first request.
            for _ in range(self._rules.fall - 1):
                self._fleet.probed(replica, False)
        self._fleet.probed(replica, good)
        await self._learn_context(replica, entries)

    async def _is_well(self, replica: Replica) -> bool:
        rules = self._rules
        if rules.path is not None:
            return 200 <= await self._status(replica, rules.path, rules.timeout_s) < 400
        status = 0
        for check in (*_engine(replica).health, _MODELS_CHECK):
            status = await self._status(replica, check.path, max(rules.timeout_s, check.timeout_s))
            if check.decides(status):
                break
        return 0 < status < 500

    async def _status(self, replica: Replica, path: str, timeout_s: float) -> int:
        """The status of a GET, 0 if there is none."""
        try:
            return await self._asker.get(replica, path, timeout_s)
        except NoAnswer:
            return 0

    async def _read_models(self, replica: Replica) -> Entries:
        """Learn /v1/models, and say what was learned; an engine without it may serve anything."""
        body = await self._body(replica, "/v1/models", _MODELS_BYTES)
        entries = {} if body is None else read_models(body)
        if entries:
            found = detect(owned_by=owners(entries))
            if found is not None and replica.config.engine is None:
                replica.engine = found  # another engine may have come to this address
            self._fleet.learned(replica, entries)
        return entries

    async def _learn_context(self, replica: Replica, entries: Entries) -> None:
        """How long a prompt may be, from engines that tell it elsewhere than with their models."""
        facts = _engine(replica).facts
        untold = [name for name, entry in entries.items() if context_tokens(entry) is None]
        if facts is None or not untold:
            return
        body = await self._body(replica, facts.path, _FACTS_BYTES)
        tokens = None if body is None else facts.parse(body).context_tokens
        if tokens is not None and not replica.removed:
            told = {name: {**entries[name], CONTEXT: tokens} for name in untold}
            self._fleet.learned(replica, {**entries, **told})

    async def _body(self, replica: Replica, path: str, size: int) -> bytes | None:
        try:
            return await self._asker.body(replica, path, self._rules.timeout_s, size)
        except NoAnswer:
            return None


def _engine(replica: Replica) -> Engine:
    return ENGINES[replica.config.engine or replica.engine or "other"]
