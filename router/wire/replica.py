"""A connection to a replica: carries one attempt at a time and reports the response to its owner.

An attempt is one sending of a request to a replica.

Rules:
1. A connection has one owner (the sender of the attempt) or none. Without an owner it is idle in
   its pool. Any event on an idle connection (a byte, a FIN, a reset) makes it unusable, because
   unsolicited bytes must not be taken for the next response. Before an idle connection is used
   again, the kernel is asked for data that the event loop has not reported yet (`has_news`).
2. `on_data` of the owner is called once per read, after the reader has parsed the bytes. The owner
   takes the response from `conn.reader`.
3. After `cancel()`, the connection calls no method of its former owner.
4. A read that exceeds the work of the present turn (`wire/turn.py`) is parsed in a later turn.

Must never: retry, choose, write to a client.
"""

from __future__ import annotations

import asyncio
import select
from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from router.config.model import Limits
from router.core.errors import Reason
from router.wire.http1.heads import ResponseHead
from router.wire.http1.plans import Plans
from router.wire.http1.response_reader import COMPLETE, BadResponse, ResponseReader
from router.wire.outbox import Outbox
from router.wire.sweep import NEVER
from router.wire.turn import LARGE_READ, LONG, SCAN

# Bits, one for each reason to pause reading from the replica. Reading resumes when no bit is set.
PAUSE_CLIENT: Final = 1
_PAUSE_TURN: Final = 2
# A body of up to this many bytes is copied behind the head, which costs less than a write of two
# buffers.
_JOINED: Final = 64 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Owner(ABC):
    """The sender of a request over a connection.

    A base class instead of a protocol, because compiled code calls its methods directly.
    """

    __slots__ = ()

    @abstractmethod
    def on_sent(self) -> None:
        """Called when `is_sending` has become false: the write buffer is almost empty again."""

    @abstractmethod
    def on_data(self, conn: ReplicaConnection) -> None:
        """Called when `conn.reader` has new data of the response."""

    @abstractmethod
    def on_lost(self, conn: ReplicaConnection, reason: Reason, detail: str) -> None:
        """Called when the connection was closed before the response was complete."""

    # The pool calls one of the next two methods only if the owner waits for a connection.

    @abstractmethod
    def on_connected(self, conn: ReplicaConnection) -> None: ...

    @abstractmethod
    def on_connect_failed(self, reason: Reason, detail: str) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class PoolInterface(ABC):
    """The part of a replica's connection pool that its connections use."""

    __slots__ = ("limits", "outbox", "plans", "poll")

    limits: Limits
    outbox: Outbox
    # Empty between two uses. One object serves all connections, because each object takes memory.
    poll: select.poll
    plans: Plans[ResponseHead]

    @abstractmethod
    def put_back(self, conn: ReplicaConnection) -> None:
        """Called when a response was read completely, so the connection can be used again."""

    @abstractmethod
    def forget(self, conn: ReplicaConnection) -> None:
        """Called when a connection is closed."""


class ReplicaConnection:
    """One connection of a pool. This object is the asyncio protocol of its transport.

    The class does not derive from `asyncio.Protocol`: compiled code would look up each attribute by
    name.
    """

    __slots__ = (
        "_early",
        "_fd",
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

    def __init__(self, pool: PoolInterface) -> None:
        self.pool = pool
        self.owner: Owner | None = None
        self.reader = ResponseReader(pool.limits)
        self.deadline = NEVER
        self.expires = NEVER  # the time at which the connection reaches its age limit
        self.uses = 0  # number of requests sent; if it is above 1, the connection was reused
        self.received = False  # whether a byte of the present response has arrived
        self.is_sending = False  # the write buffer is above its high-water mark
        self._pauses = 0
        self._lost = False
        self._early = b""  # received bytes that are parsed in a later turn of the event loop
        self._fd = -1  # the socket, if unread bytes on it are always a defect; else -1

    # -- what the owner uses ------------------------------------------------------------------

    def send(self, owner: Owner, head: bytes, body: list[bytes], *, for_head: bool) -> None:
        """Sends one request. Events of its response are reported to the methods of `owner`."""
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
        """Called by the owner when the response is complete.

        Puts the connection back into the pool, or closes it if its reuse would be unsafe.
        """
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
            # The response is complete before the whole request was sent. On a reused connection,
            # the rest of this request would come before the next request.
            or self.transport.get_write_buffer_size()
        ):
            self._drop()
        else:
            self._resume_all()
            self.pool.put_back(self)

    def cancel(self) -> None:
        """Closes the connection, so that the engine stops generating a response nobody needs."""
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
        # Not over TLS: an unread byte may be a session ticket or a key update, which is harmless.
        if sock is not None and transport.get_extra_info("ssl_object") is None:
            self._fd = sock.fileno()

    def has_news(self) -> bool:
        """Return whether unread bytes or a FIN have arrived on this idle connection.

        Checked before the next request is sent, because unsolicited data that is read later cannot
        be distinguished from the response to that request.
        """
        fd = self._fd
        if fd < 0:
            return False
        poll = self.pool.poll
        poll.register(fd, select.POLLIN)
        news = poll.poll(0)
        poll.unregister(fd)
        return len(news) > 0

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
        if len(data) >= LONG:
            turn = self.pool.outbox.turn
            has_work = turn.left > 0
            if len(data) >= LARGE_READ or not has_work:
                self.pause(_PAUSE_TURN)
                turn.wait(self.on_turn)
            if not has_work:
                self._early = data
                return
            turn.spend(len(data) >> SCAN)
        self._read(owner, data)

    def _read(self, owner: Owner, data: bytes) -> None:
        try:
            self.reader.feed(data)
        except BadResponse as err:
            self._fail(Reason.BAD_RESPONSE, str(err))
            return
        owner.on_data(self)

    def on_turn(self) -> None:
        self._read_early()
        self.resume(_PAUSE_TURN)

    def _read_early(self) -> None:
        early, self._early = self._early, b""
        owner = self.owner
        if early and owner is not None:
            self.pool.outbox.turn.spend(len(early) >> SCAN)
            self._read(owner, early)

    def eof_received(self) -> bool:
        self._read_early()  # TLS reports the end of the connection even while reading is paused.
        owner = self.owner
        if owner is None:
            self._drop()
        elif self.reader.eof():
            owner.on_data(self)
        else:
            self._fail(Reason.REPLICA_RESET, "the replica closed the connection too early")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._read_early()
        self._lost = True
        self.deadline = NEVER
        if self.owner is not None:
            # The connection was lost without a FIN (over TLS: without a close_notify), so the
            # response is incomplete.
            self._fail(Reason.REPLICA_RESET, str(exc or "the connection was lost"))
        self.pool.forget(self)

    def on_deadline(self, now: float) -> None:
        """Closes the connection, because it was idle for too long."""
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
        """Whether the connection has served another request before the present request."""
        return self.uses > 1

    def idle_until(self, when: float) -> None:
        self.deadline = min(when, self.expires)
