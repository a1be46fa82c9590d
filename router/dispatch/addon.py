"""The interface between the router and its addons, the folders of `router/addons`.

An addon is imported only if a setting needs it (`config/addons.py`). Its module has a function
`make(host, config)`, which returns its `Addon` and raises ConfigError if it cannot be used. A
source of discovery has `make_source` and `renewed` instead (`fleet/discovery/watcher.py`).

The order of the calls: `adopt`; after a restart `continues`; `start`; `listening`. Then, in any
order, those of replicas and reloads; `rest` and `release` at the end of the process; `stop` and
`close`, also after a start that failed.

Must never: start anything in `make`, or keep an object of a replica after `unwatch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import msgspec

from router.config.in_force import InForce
from router.config.model import Config
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.queueing.queue_driver import QueueDriver
from router.fleet.notice import Notice
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.observe.families.family import Source
from router.wire.sweep import Sweeper


class Reclaims(Protocol):
    """What the notices of spot machines are given to (`app/reclaims.py`)."""

    def noticed(self, notice: Notice, source: str) -> None: ...

    def withdrawn(self, notice: Notice, source: str) -> None: ...


class Channel(Protocol):
    """Carries messages between the workers of one machine."""

    # Gets each message, also the own ones, as soon as it comes. Must not raise.
    on_told: Callable[[bytes], None] | None

    def tell(self, data: bytes) -> bool:
        """Sends a message to all workers; returns whether it is on its way."""


class Host(Protocol):
    """The parts of the router that an addon may use. They exist when the addon is made."""

    in_force: InForce
    loop: asyncio.AbstractEventLoop
    rng: Random
    fleet: Fleet
    dispatcher: Dispatcher
    sweeper: Sweeper
    siblings: Channel | None  # None: this process serves alone.

    @property
    def queue(self) -> QueueDriver | None:
        """`None`: requests are sent without queueing."""

    def failed(self, err: BaseException) -> None:
        """Logs an unexpected exception."""

    @property
    def reclaims(self) -> Reclaims: ...

    def max_clients(self, config: Config) -> int:
        """Return how many client connections the data port accepts."""

    def connect_within(self) -> asyncio.Protocol:
        """Return the data port's protocol for a connection from inside this process."""


class Addon:
    """An addon's part in the life of one router. A method that is not overridden does nothing."""

    families: Sequence[Source[Any]] = ()  # Its metrics.

    @property
    def running(self) -> int:
        """The number of its background tasks and sockets; 0 after `stop`."""
        return 0

    def held(self) -> dict[str, int]:
        """Return what it holds for requests, by name; each number is 0 after `stop`."""
        return {}

    def adopt(self, config: Config) -> None:
        """Uses these settings from now on; `Host.in_force` has them already."""

    def state(self) -> object:
        """Return what the process after this one must know, as JSON; `None`: nothing."""
        return None

    def continues(self, state: msgspec.Raw) -> None:
        """Applies the `state` of the process before this one. May come again with a later one."""

    async def start(self, *, waits: bool = False) -> None:
        """Starts, when all replicas were probed once. Raises ConfigError.

        `waits`: another process may have what the addon needs, and releases it later.
        """

    async def listening(self) -> None:
        """Called when the data port accepts connections."""

    def watch(self, replica: Replica) -> None:
        """Called for each replica that joins after the start."""

    def unwatch(self, replica: Replica) -> None:
        """Called for each replica that leaves."""

    def ranks_changed(self, replica: Replica) -> None:
        """Called when a member of the fleet has other data-parallel ranks."""

    def regions_changed(self) -> None:
        """Called when a replica has another region, after which it may get other requests."""

    async def reloaded(self) -> None:
        """Called when a reload is in force."""

    def rest(self) -> None:
        """Begins no more work, because the router drains."""

    async def release(self) -> bool:
        """Gives up what the next process needs. Called again until the result is true."""
        return True

    async def stop(self) -> None:
        """Ends all that causes requests and needs the fleet."""

    async def close(self) -> None:
        """Ends the rest, after the last request has ended. Always called after `stop`."""
