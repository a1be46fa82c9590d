"""Lists and watches the objects of one source in Kubernetes.

A watch that ends is continued from its last version. After any failure, all objects are listed
again, with back-off: a version may be unknown to the server, and a broken server may have left out
events. While no list succeeds, the fleet stays as it is.

Must never: ask the server again without a pause after a failure.
"""

from __future__ import annotations

import asyncio
import math
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Final

from router.addons.kubernetes.endpoints import EndpointSet, Joined, Objects
from router.addons.kubernetes.objects import ApiFailed
from router.config.model import Discovery, KubernetesReplicas
from router.core.clock import monotonic
from router.fleet.discovery.source import Look, Source, retry_after_s

if TYPE_CHECKING:
    from router.addons.kubernetes.client import KubernetesClient, Watch

_OBJECTS_MAX: Final = 10_000  # Maximum number of objects of one source.
_QUIET_S: Final = 10.0  # A look ends after this time even if nothing has changed.
_REOPEN_S: Final = 0.1  # Seconds until a watch that ended is continued.
# A watch that ends sooner, without a change, has failed (client-go: "very short watch").
_SHORT_S: Final = 1.0
# The first failure of these is expected: a token has expired, or a version is too old.
_EXPECTED: Final = (401, 410)


class KubernetesSource(Source):
    """One Service, or the pods with certain labels."""

    def __init__(
        self, source: KubernetesReplicas, rules: Discovery, rng: Random, joined: Joined
    ) -> None:
        """`joined`: that of this source before a reload."""
        super().__init__(source.name)
        self._source = source
        self._rules = rules
        self._rng = rng
        self._endpoints = EndpointSet(source, joined)
        self._client: KubernetesClient | None = None  # `None`: it must be created (again).
        self._watch: Watch | None = None  # `None`: it must be started.
        self._began_at = 0.0  # When the watch began.
        self._has_changes = False  # Whether the watch has reported a change.
        self._failures = 0  # In a row.

    @property
    def joined(self) -> Joined:
        """The engines that have joined and not left, by key."""
        return self._endpoints.joined

    async def look(self) -> Look:
        try:
            if not self._endpoints.version:
                return await self._list()
            return await self._follow()
        except ApiFailed as err:
            await self.close()
            self._endpoints.version = ""
            self._failures += 1
            if self._failures == 1 and err.status in _EXPECTED:
                return Look(0.0, problem=self._endpoints.problem)
            return Look(retry_after_s(self._failures, self._rules, self._rng), problem=str(err))

    async def close(self) -> None:
        self._end_watch()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _list(self) -> Look:
        client = await self._connected()
        objects, continues = Objects(self._source), ""
        while True:
            page = await client.page(continues)
            for raw in page.items or ():
                objects.add(raw, self._endpoints.objects)
                await asyncio.sleep(0)  # A large object needs some milliseconds.
            continues = page.metadata.continue_ or ""
            if len(objects) > _OBJECTS_MAX or (continues and not page.items):
                raise ApiFailed(f"names more than {_OBJECTS_MAX} objects")
            if not continues:
                break
        self._endpoints.listed(objects, page.metadata.resource_version)
        return self._answer()

    async def _follow(self) -> Look:
        """Wait for changes, at most `_QUIET_S` seconds."""
        endpoints, watch = self._endpoints, self._watch
        if watch is None:
            client = await self._connected()
            seconds = self._rules.ttl_max_s * self._rng.uniform(0.8, 1.0)
            watch = await client.watch(endpoints.version, math.ceil(seconds))
            self._watch = watch
            self._began_at = monotonic()
            self._has_changes = False
        lines = await watch.lines(_QUIET_S)
        has_changed = False
        for line in lines or ():
            has_changed = endpoints.changed(line) or has_changed
            await asyncio.sleep(0)
        if len(endpoints.objects) > _OBJECTS_MAX:
            raise ApiFailed(f"names more than {_OBJECTS_MAX} objects")
        self._has_changes = self._has_changes or has_changed
        if self._has_changes or monotonic() - self._began_at > _SHORT_S:
            self._failures = 0
        elif lines is None:
            raise ApiFailed("a watch ended at once")
        if lines is None:
            self._end_watch()
            return Look(_REOPEN_S, problem=endpoints.problem)
        return self._answer() if has_changed else Look(0.0, problem=endpoints.problem)

    def _answer(self) -> Look:
        found = self._endpoints.found()
        return Look(0.0, found, problem=self._endpoints.problem)

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    async def _connected(self) -> KubernetesClient:
        if self._client is None:
            # The client is imported only here, because it is an optional package. In a thread,
            # because the import needs 0.4 s.
            name = "router.addons.kubernetes.client"
            module = await asyncio.to_thread(import_module, name)
            self._client = await module.KubernetesClient.connect(
                self._source, self._rules.timeout_s
            )
        return self._client
