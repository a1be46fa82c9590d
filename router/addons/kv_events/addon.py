"""The subscriptions to KV events and the provider of token IDs, in the life of one router."""

from __future__ import annotations

from typing import Final

from router.addons.kv_events.token_ids import TokenIds
from router.addons.kv_events.tokens.provider import TokenProvider
from router.addons.kv_events.watcher import KvWatcher
from router.config.model import Config
from router.dispatch.addon import Addon, Host
from router.fleet.replica import Replica
from router.observe.families.family import COUNTER, Family, Source


class KvEvents(Addon):
    """Created only if `prefix.exact` is set."""

    def __init__(self, host: Host, config: Config) -> None:
        """Raises ConfigError if an optional package is missing."""
        self.watcher = KvWatcher(host.in_force, host.rng, host.failed)
        self.tokens = TokenProvider(host.in_force, host.failed)
        self.families = (Source(FAMILIES, lambda: self),)
        self._fleet = host.fleet
        host.fleet.knowledge.exact = self.watcher.index
        host.dispatcher.placement.token_ids = TokenIds(self.tokens, host.fleet)

    @property
    def running(self) -> int:
        return self.watcher.running

    def held(self) -> dict[str, int]:
        return {"questions": self.tokens.running}

    def adopt(self, config: Config) -> None:
        self.regions_changed()

    async def start(self, *, waits: bool = False) -> None:
        await self.tokens.start()
        self.watcher.start()
        for replica in self._fleet.members:
            self.watch(replica)

    def watch(self, replica: Replica) -> None:
        if not replica.is_external:
            self.watcher.watch(replica)

    def unwatch(self, replica: Replica) -> None:
        self.watcher.unwatch(replica)

    def ranks_changed(self, replica: Replica) -> None:
        """Subscribes again, because other replicas hold the blocks of the ranks."""
        if self.watcher.watches(replica):
            self.watcher.unwatch(replica)
            self.watcher.watch(replica)

    def regions_changed(self) -> None:
        self.tokens.stop_remote()

    async def stop(self) -> None:
        await self.watcher.stop()
        await self.tokens.stop()


def _counts_of(counters: object) -> dict[str, float]:
    return {name: float(getattr(counters, name)) for name in type(counters).__slots__}  # type: ignore[attr-defined]


FAMILIES: Final[tuple[Family[KvEvents], ...]] = (
    Family(
        "kv_events",
        COUNTER,
        "KV cache events from engines, by how they were handled.",
        lambda addon: _counts_of(addon.watcher.counters),
        ("event",),
    ),
    Family(
        "token_questions",
        COUNTER,
        "Requests for the token IDs of a prompt, by outcome.",
        lambda addon: _counts_of(addon.tokens.counters),
        ("answer",),
    ),
)
