"""What all client connections share, and what they call: the handler and the running requests.

Must never: read or write a byte of a connection.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr, trait

from router.config.model import Cors as CorsConfig, Limits, Timeouts
from router.core.errors import Reason, RouterError
from router.core.tally import Tally
from router.wire.http1.cors import Cors, cors_of
from router.wire.http1.heads import RequestHead
from router.wire.http1.plans import Plans
from router.wire.origins import Counted, Origins
from router.wire.outbox import Outbox
from router.wire.sweep import Sweeper

if TYPE_CHECKING:
    from router.wire.client import ClientConnection

# The maximum number of connections that linger after a refusal (`linger.py`).
LINGERING: Final = 256
# The maximum number of connections, divided by `_RESERVE`, is a reserve. While connections of the
# reserve are in use, the head of each new request decides whether its connection may stay open.
_RESERVE: Final = 16


@trait
class ClientExchange(ABC):
    """A running request, as seen by the connection of its client."""

    __slots__ = ()

    @abstractmethod
    def client_gone(self, reason: Reason) -> None: ...

    @abstractmethod
    def client_paused(self) -> None: ...

    @abstractmethod
    def client_resumed(self) -> None: ...

    @abstractmethod
    def crashed(self, err: Exception) -> None:
        """Called when a callback for this request raised an exception: a defect of the router.

        Logs the error and ends the request, with an error response if that is still possible. Must
        not raise.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """The code that handles the requests of all client connections."""

    __slots__ = ()

    @abstractmethod
    def check_head(self, head: RequestHead) -> None:
        """Called before the body of a request is read.

        Raises RouterError to refuse the request. Sets `head.passes` if a `Tunnel` is to carry the
        body.
        """

    @abstractmethod
    def start(
        self, client: ClientConnection, head: RequestHead, body: list[bytes], size: int
    ) -> None:
        """Handles a request that has arrived completely.

        Sets `client.exchange`, or sends the response at once and calls `client.done`.
        """

    @abstractmethod
    def hand_over(self, client: ClientConnection, head: RequestHead, early: bytes) -> None:
        """Takes over the transport of a request for which `check_head` set `passes`.

        `early` contains the bytes of the request's body that have already arrived.
        """

    @abstractmethod
    def relieve(self, peer: str, head: RequestHead, body_bytes: int) -> bool:
        """Called when too many connections are open (`body_bytes` is 0), or when the memory for
        request bodies is exceeded by `body_bytes` bytes.

        Evicts waiting requests of flows that use more than the flow of this request. Returns
        whether this request may continue.
        """

    @abstractmethod
    def refused(self, client: ClientConnection, head: RequestHead | None, err: RouterError) -> str:
        """Logs and counts a request that was refused before `start`. Returns its request ID."""

    @abstractmethod
    def log_defect(self, err: Exception) -> None:
        """Logs an exception that is a defect of the router."""


class Front:
    """What all client connections share: limits, timeouts, and the set of connections."""

    def __init__(
        self,
        handler: Handler,
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
        self.handler = handler
        self.sweeper = sweeper
        self.adopt(limits, timeouts, cors)
        self.via = via
        self._reserved = 0  # places of connections that are taken by `reserve`
        self.max_clients = max_clients
        self.allow_half_close = allow_half_close
        self.clients: set[ClientConnection] = set()
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

    def join(self, client: ClientConnection) -> None:
        """Counts a new connection."""
        self.clients.add(client)
        self.origins.join(client)

    def leave(self, client: ClientConnection) -> None:
        """Takes a connection out of those that are counted."""
        self.clients.discard(client)
        self.lingering.pop(client, None)
        self.origins.leave(client)

    def takes(self, client: ClientConnection, now: float) -> bool:
        """Return whether a new connection may stay although it exceeds the soft limit.

        If possible, a connection is closed instead whose request was refused, or that waits for a
        request. Otherwise the new
        connection stays until the head of its request arrives; the head decides whether the
        connection may stay. Returns False if the maximum number of connections is exceeded.
        """
        quiet: Counted | None = next(iter(self.lingering), None)
        if quiet is None:
            quiet = self.origins.quiet(client, now)
        if quiet is not None:
            quiet.shed()
        return len(self.clients) + self._reserved <= self._max_clients
