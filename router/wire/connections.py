"""What all client connections share: settings, limits, and the connections that linger.

Must never: read or write a byte of a connection.
"""

from __future__ import annotations

import asyncio
from typing import Final

from router.config.model import Cors as CorsConfig, Limits, Timeouts
from router.core.tally import Tally
from router.wire.http1.cors import Cors, cors_of
from router.wire.http1.heads import RequestHead
from router.wire.http1.plans import Plans
from router.wire.origins import Counted, Origins
from router.wire.outbox import Outbox
from router.wire.sweep import Sweeper

# The maximum number of connections that linger after a refusal (`linger.py`).
LINGERING: Final = 256
# The maximum number of connections, divided by `_RESERVE`, is a reserve. While connections of the
# reserve are in use, the head of each new request decides whether its connection may stay open.
_RESERVE: Final = 16


class Connections:
    """The settings, limits and counts of all client connections; the base class of `Front`."""

    def __init__(
        self,
        sweeper: Sweeper,
        limits: Limits,
        timeouts: Timeouts,
        *,
        tally: Tally | None = None,
        outbox: Outbox | None = None,
        via: bytes,
        max_clients: int,
        allow_half_close: bool,
        cors: CorsConfig = CorsConfig(),  # noqa: B008  (frozen)
    ) -> None:
        self.sweeper = sweeper
        self.adopt(limits, timeouts, cors)
        self.via = via
        self._reserved = 0  # places of connections that are taken by `reserve`
        self.max_clients = max_clients
        self.allow_half_close = allow_half_close
        self.origins = Origins()
        # The connections that discard the rest of refused requests, the oldest first.
        self.lingering: dict[Counted, None] = {}
        # Bytes in memory: request bodies, unfinished heads, and data that clients sent early.
        self.held_bytes = 0
        self.draining = False
        # Every response closes its connection, so that clients move to another process in time.
        self.last_answers = False
        self.tally = tally
        self.outbox = Outbox(asyncio.get_running_loop()) if outbox is None else outbox
        self.turn = self.outbox.turn

    def adopt(self, limits: Limits, timeouts: Timeouts, cors: CorsConfig) -> None:
        """Applies settings. Called again at a configuration reload.

        The settings that every request reads are copied into attributes, which are faster to read.
        """
        self.limits = limits
        self.timeouts = timeouts
        self.body_most = limits.body
        self.bodies_total = limits.bodies_total
        self.keep_alive_s = timeouts.keep_alive_s
        self.cors: Cors | None = cors_of(cors)  # `None`: the section `cors` is off
        # Heads that were remembered before the reload were checked against the old limits.
        self.plans: Plans[RequestHead] = Plans()

    @property
    def max_clients(self) -> int:
        """The maximum number of connections at once."""
        return self._max_clients

    @max_clients.setter
    def max_clients(self, most: int) -> None:
        self._max_clients = most
        # Above this number of connections, the router closes quiet connections.
        self.soft_clients = most - most // _RESERVE - self._reserved
        self.most_lingering = min(LINGERING, most // 4)

    def reserve(self, places: int) -> None:
        """Takes the places of so many connections, or gives them back if the number is negative.

        The maximum number of connections assumes two open files for each connection. One that needs
        more takes further places.
        """
        self._reserved += places
        self.max_clients = self._max_clients
