"""Looks at the sources of replicas, with one task for each source.

A source with a problem never affects another source.

Must never: decide what a look means for the fleet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from types import ModuleType
from typing import Final

from router.config.in_force import InForce
from router.config.model import Config, Discovery
from router.core.addons import load
from router.fleet.discovery.dns_source import DnsSource, dns_name
from router.fleet.discovery.file_source import FileSource, file_name
from router.fleet.discovery.records import renewed
from router.fleet.discovery.roster import Found, Renew
from router.fleet.discovery.source import Look, Source

_AFTER_DEFECT_S: Final = 60.0  # Seconds until the next look after an unexpected exception.


class DiscoveryWatcher:
    """The sources of one router. Call `start` once, and `stop` at the end."""

    def __init__(
        self, in_force: InForce, rng: Random, on_error: Callable[[BaseException], None]
    ) -> None:
        """`on_error` is called with an unexpected exception of `on_look`."""
        # Called with the name of a source and the result of each look.
        self.on_look: Callable[[str, Look], None] = _ignored
        self._in_force = in_force
        self._rng = rng
        self._on_error = on_error
        self._files: dict[str, FileSource] = {}  # By path.
        self._kubernetes: dict[str, Source] = {}  # By name.
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        return len(self._tasks) + len(self._ending)

    async def start(self) -> None:
        """Start to look at all sources. Returns after the first look at each, or after
        `discovery.timeout`."""
        first = [self._begin(source) for source in self._sources()]
        if first:
            await asyncio.wait(first, timeout=self._in_force.config.discovery.timeout_s)

    def reloaded(self, before: Config) -> None:
        """Look at all sources anew if a reload has changed a setting of one. `before`: the
        configuration that the reload has replaced."""
        config = self._in_force.config
        if (config.discovery, config.pools) != (before.discovery, before.pools):
            self._cancel()
            for source in self._sources():
                self._begin(source)

    async def stop(self) -> None:
        self._cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        self._tasks.clear()

    def _sources(self) -> list[Source]:
        """Return all sources. A file that was a source before keeps its state, because a content
        that is being written must not be used after a reload either. A source in Kubernetes keeps
        the engines that have joined, because they stay if they are no longer ready."""
        config, rng = self._in_force.config, self._rng
        rules = config.discovery
        known, self._files = self._files, {}
        for path in rules.files:
            if path in known:
                known[path].reloaded()
            self._files[path] = known.get(path) or FileSource(path, self._in_force, rng)
        before, self._kubernetes = self._kubernetes, {}
        for each in rules.kubernetes:
            make = _kubernetes().make_source
            self._kubernetes[each.name] = make(each, rules, rng, before.get(each.name))
        names = [DnsSource(name, rules, rng) for name in rules.dns]
        return [*self._files.values(), *names, *self._kubernetes.values()]

    def _begin(self, source: Source) -> asyncio.Future[None]:
        """Start to look at a source. Returns a future that is done after the first look."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks[source.name] = asyncio.ensure_future(self._watch(source, first))
        return first

    async def _watch(self, source: Source, first: asyncio.Future[None]) -> None:
        try:
            await self._look(source, first)
        finally:
            await source.close()

    async def _look(self, source: Source, first: asyncio.Future[None]) -> None:
        while True:
            wait_s = _AFTER_DEFECT_S
            try:
                look = await source.look()
                wait_s = look.wait_s
                self.on_look(source.name, look)
            except Exception as err:  # A defect must not end a source.
                self._report(source.name, Look(wait_s, problem=repr(err)))
            if not first.done():
                first.set_result(None)
            await asyncio.sleep(wait_s)

    def _report(self, name: str, look: Look) -> None:
        try:
            self.on_look(name, look)
        except Exception as err:
            self._on_error(err)


def sources_of(rules: Discovery) -> dict[str, Renew]:
    """Return all sources by name, in the order of precedence, each with its present settings.

    Raises ConfigError if the addon of a source is missing.
    """
    return {
        **dict.fromkeys(map(file_name, rules.files), _same),
        **{dns_name(name): partial(renewed, name=name) for name in rules.dns},
        **{each.name: partial(_kubernetes().renewed, source=each) for each in rules.kubernetes},
    }


def _kubernetes() -> ModuleType:
    return load("kubernetes", "discovery.kubernetes")


def _same(found: Found) -> Found:
    return found


def _ignored(source: str, look: Look) -> None:
    """Do nothing: no callback is set."""
