"""A connection to a replica: carries one attempt at a time, tells its owner what came back.

Rules:
1. One owner or none. Without an owner the connection is idle in its pool, and any event, a byte, a
   FIN, a reset, makes it unusable: unsolicited bytes are never the next answer. Before it is used
   again the kernel is asked for what the event loop has not told yet (`has_news`).
2. The owner hears `on_data` once per read, after the bytes were framed; it looks at the reader.
3. After `cancel()` nothing of this connection reaches the owner any more.

Must never: retry, choose, write to a client.
"""

from __future__ import annotations

import asyncio
import select
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import Final

from mypy_extensions import mypyc_attr

from router.config.model import Limits
from router.core.errors import Reason
from router.wire.heads import ResponseHead
from router.wire.outbox import Outbox
from router.wire.plans import Plans
from router.wire.reads import LARGE_READ
from router.wire.response_reader import COMPLETE, BadResponse, ResponseReader
from router.wire.sweep import NEVER

# Why reading from the replica is paused; reading goes on when no reason is left.
PAUSE_CLIENT: Final = 1
_PAUSE_TURN: Final = 2
# Copying a body this small costs less than a write of two buffers.
_JOINED: Final = 64 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Owner(ABC):
    """The sender of a request over a connection. A base class: compiled code calls it directly."""

    __slots__ = ()

    @abstractmethod
    def on_sent(self) -> None:
        """`is_sending` has ended: little of what was sent has not left."""

    @abstractmethod
    def on_data(self, conn: ReplicaConnection) -> None:
        """`conn.reader` has something new."""

    @abstractmethod
    def on_lost(self, conn: ReplicaConnection, reason: Reason, detail: str) -> None:
        """The response will not be completed; the connection is gone already."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Home(ABC):
    """Where connections of one replica come from and go to: its pool, as they see it."""

    __slots__ = ("limits", "outbox", "plans")

    limits: Limits
    outbox: Outbox
    plans: Plans[ResponseHead]

    @abstractmethod
    def put_back(self, conn: ReplicaConnection) -> None:
        """A response was read to its end: the connection is free."""

    @abstractmethod
    def forget(self, conn: ReplicaConnection) -> None:
        """A connection is gone."""

    @abstractmethod
    def look_again(self, resume: Callable[[int], None], why: int) -> None:
        """Call `resume(why)` in the next turn of the loop."""


class ReplicaConnection:
    """One connection of a pool; the protocol of its transport.

    `asyncio.Protocol` is no base class: compiled code would look up each attribute by name.
    """

    __slots__ = (
        "_look",
        "_lost",
        "_pauses",
        "deadline",
        "expires",
        "is_sending",
        "owner",
        "pool",
        "reader",
        "received",
        "transport",
        "uses",
    )

    transport: asyncio.Transport

    def __init__(self, pool: Home) -> None:
        self.pool = pool
        self.owner: Owner | None = None
        self.reader = ResponseReader(pool.limits)
        self.deadline = NEVER
        self.expires = NEVER  # its age limit
        self.uses = 0  # requests sent so far; more than one: the connection was reused
        self.received = False  # a byte of the present response has come
        self.is_sending = False  # much of the request waits for the replica to read
        self._pauses = 0
        self._lost = False
        self._look: Callable[[int], list[tuple[int, int]]] | None = None

    # -- what the owner uses ------------------------------------------------------------------

    def send(self, owner: Owner, head: bytes, body: list[bytes], *, for_head: bool) -> None:
        """Send one request; the owner hears what comes back."""
        self.owner = owner
        self.deadline = NEVER
        self.uses += 1
        self.received = False
        self.reader = ResponseReader(self.pool.limits, for_head, self.pool.plans)
        if not body:
            self.pool.outbox.write(self.transport, head)
        elif len(body) == 1 and len(body[0]) <= _JOINED:
            self.pool.outbox.write(self.transport, head + body[0])
        else:
            self.transport.writelines([head, *body])

    def release(self) -> None:
        """The response is complete: back to the pool, or closed where that would not be safe."""
        self.owner = None
        reader = self.reader
        head = reader.head
        if (
            head is None
            or reader.state != COMPLETE
            or reader.surplus
            or not head.keep_alive
            or self._lost
            or self.transport.is_closing()
            # An answer that came before the whole request was sent: the rest would follow it.
            or self.transport.get_write_buffer_size()
        ):
            self._drop()
        else:
            self._resume_all()
            self.pool.put_back(self)

    def cancel(self) -> None:
        """The response is of no interest any more: the engine sees the connection close, now."""
        self.owner = None
        self._drop()

    def pause(self, why: int) -> None:
        if not self._pauses and not self._lost:
            self.transport.pause_reading()
        self._pauses |= why

    def resume(self, why: int) -> None:
        if self._pauses:
            self._pauses &= ~why
            if not self._pauses and not self._lost:
                self.transport.resume_reading()

    # -- transport callbacks ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        sock = transport.get_extra_info("socket")
        # Over TLS bytes may come that are none of an answer's: a ticket, a change of keys.
        if sock is not None and transport.get_extra_info("ssl_object") is None:
            watch = select.poll()
            watch.register(sock.fileno(), select.POLLIN)
            self._look = watch.poll

    def has_news(self) -> bool:
        """Whether something has come to an idle connection that nobody has read yet: bytes or an
        end. What comes a moment after its next request was sent cannot be told from its answer."""
        return self._look is not None and len(self._look(0)) > 0

    def pause_writing(self) -> None:
        self.is_sending = True

    def resume_writing(self) -> None:
        self.is_sending = False
        if self.owner is not None:
            self.owner.on_sent()

    def data_received(self, data: bytes) -> None:
        owner = self.owner
        if owner is None:
            self._drop()
            return
        self.received = True
        if len(data) >= LARGE_READ:
            self.pause(_PAUSE_TURN)
            self.pool.look_again(self.resume, _PAUSE_TURN)
        try:
            self.reader.feed(data)
        except BadResponse as err:
            self._fail(Reason.BAD_RESPONSE, str(err))
            return
        owner.on_data(self)

    def eof_received(self) -> bool:
        owner = self.owner
        if owner is None:
            self._drop()
        elif self.reader.eof():
            owner.on_data(self)
        else:
            self._fail(Reason.REPLICA_RESET, "the replica ended the connection too early")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.deadline = NEVER
        if self.owner is not None:
            # No FIN came before it (over TLS: no goodbye), so this is no end of a body.
            self._fail(Reason.REPLICA_RESET, str(exc or "the connection was lost"))
        self.pool.forget(self)

    def on_deadline(self, now: float) -> None:
        """Idle for too long."""
        self.deadline = NEVER
        if self.owner is None:
            self._drop()

    # -- inside -------------------------------------------------------------------------------

    def _fail(self, reason: Reason, detail: str) -> None:
        owner, self.owner = self.owner, None
        self._drop()
        if owner is not None:
            owner.on_lost(self, reason, detail)

    def _drop(self) -> None:
        self.pool.forget(self)
        if not self._lost:
            self._lost = True
            self.transport.abort()

    def _resume_all(self) -> None:
        if self._pauses:
            self._pauses = 0
            self.transport.resume_reading()

    @property
    def reused(self) -> bool:
        """Whether the present request went over a connection that had served another."""
        return self.uses > 1

    def idle_until(self, idle_s: float) -> None:
        self.deadline = min(monotonic() + idle_s, self.expires)
