"""A fleet without a network: real replicas and pools that are never connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Any, ClassVar

from router.config.model import Health, Limits, Prefix, Replica as ReplicaConfig, Timeouts
from router.core.lease import Lease
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.wire.pool import Address, Pool
from router.wire.sweep import Sweeper


class Table:
    """A fleet and its reports: `changes` (IDs after each change) and `events`.

    A test may replace `clock`, the fleet's time in monotonic seconds. Without a running event loop,
    timers never fire. The tests of `tests/fleet` need not close it.
    """

    open: ClassVar[list[Table]] = []

    def __init__(self, **rules: Any) -> None:
        self._own_loop: asyncio.AbstractEventLoop | None = None
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            self.loop = self._own_loop = asyncio.new_event_loop()
        self.open.append(self)
        self.rules = Health(**rules)
        self.clock: Callable[[], float] = monotonic
        self.changes: list[frozenset[str]] = []
        self.events: list[tuple[str, str]] = []
        self.errors: list[BaseException] = []
        self.sweeper = Sweeper(self.loop, self.errors.append)
        self.fleet = Fleet(
            self.rules,
            self.sweeper,
            Random(1),
            self.changes.append,
            lambda what, replica: self.events.append((what, replica.id)),
            knowledge=PrefixLookup(Prefix()),
            clock=lambda: self.clock(),
        )

    def add(
        self,
        id: str,
        models: tuple[str, ...] | None = ("m",),
        *,
        is_new: bool = False,
        **config: Any,
    ) -> Replica:
        """Add a replica, without connections unless `url` is given. `is_new`: not probed yet."""
        replica = self.make(id, models, is_new=is_new, **config)
        self.fleet.add(replica)
        return replica

    def make(
        self,
        id: str,
        models: tuple[str, ...] | None = ("m",),
        *,
        is_new: bool = False,
        **config: Any,
    ) -> Replica:
        """Make a replica like `add` without adding it to the fleet."""
        settings = ReplicaConfig(
            **{"url": "http://127.0.0.1:9", "id": id, "models": models, **config}
        )
        address = Address("127.0.0.1", 9)
        pool = Pool(address, Limits(), Timeouts(), self.sweeper, self.loop)
        replica = Replica(settings, self.rules, pool)
        if is_new:
            replica.health.await_probe()
        return replica

    def ids(self, model: str | None, *tried: str) -> list[str]:
        """IDs of the replicas that may serve a model, sorted."""
        known = [self.fleet.replicas[id] for id in tried]
        return sorted(r.id for r in self.fleet.eligibility.replicas(model, None, known))

    def lease(self, replica: Replica) -> Lease:
        return Lease(replica)

    def close(self) -> None:
        self.open.remove(self)
        self.sweeper.close()
        if self._own_loop is not None:
            self._own_loop.close()
        assert not self.errors
