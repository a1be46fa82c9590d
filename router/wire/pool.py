"""The connection pool of one replica: idle connections, and a bounded number that are being opened.

An owner of a connection is the sender of one request. `acquire` returns the idle connection that
was used last, so that idle connections that are not needed expire. If no connection is idle, the
owner enters the pool's queue, and a connection is opened. A connection that becomes free goes to
the first owner in the queue. It becomes idle only if the queue is empty. Each failure to connect
fails exactly one owner in the queue. So the queue of a dead replica empties as fast as connections
are refused. At most `limits.connecting` connections are being opened at once.

An owner waits at most the connect timeout from its call of `acquire`, even if all connections that
are being opened go to other owners. Otherwise, for a replica that drops packets, an owner could
wait for several timeouts in sequence. When the fleet removes the replica, `give_up` fails all
waiting owners at once.

Idle connections are kept for 3 s by default. Servers such as uvicorn close an idle connection after
5 s, and a request that is sent while the server closes the connection must be sent again.

Must never: retry, interpret requests, or keep a waiting owner after `cancel`.
"""

from __future__ import annotations

import asyncio
import errno
import random
import select
import ssl
from collections.abc import Awaitable, Callable
from typing import cast

from mypy_extensions import mypyc_attr

from router.config.model import Limits, Timeouts
from router.core.clock import monotonic
from router.core.errors import Reason
from router.core.tally import Tally
from router.wire.http1.heads import ResponseHead
from router.wire.http1.plans import Plans
from router.wire.outbox import Outbox
from router.wire.replica import Owner, PoolInterface, ReplicaConnection
from router.wire.sweep import NEVER, Sweeper


@mypyc_attr(allow_interpreted_subclasses=True)
class Address:
    """The address of a replica. `resolve` returns its IP addresses in the order to try them.

    `is_own`: whether an IP address and a port are a listener of this router. Requests to it would
    come back, or reach the admin port with the rights of the router.
    """

    __slots__ = ("host", "is_own", "port", "resolve", "server_name", "tls")

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        resolve: Callable[[], Awaitable[list[str]]] | None = None,
        is_own: Callable[[str, int], bool] | None = None,
    ) -> None:
        self.host = host
        self.is_own = is_own
        self.port = port
        self.tls = tls
        self.server_name = server_name or host
        self.resolve = resolve


class Pool(PoolInterface):
    """All connections to one replica."""

    def __init__(
        self,
        address: Address,
        limits: Limits,
        timeouts: Timeouts,
        sweeper: Sweeper,
        loop: asyncio.AbstractEventLoop,
        tally: Tally | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self.outbox = Outbox(loop) if outbox is None else outbox
        self._tally = tally
        self.address = address
        self.plans: Plans[ResponseHead] = Plans()
        self.poll = select.poll()
        self.adopt(limits, timeouts)
        self._sweeper = sweeper
        self._loop = loop
        self._idle: list[ReplicaConnection] = []
        # The queue: the deadline of each waiting owner, in order of arrival.
        self._waiters: dict[Owner, float] = {}
        self._fresh: set[Owner] = set()  # waiting owners that must get a new connection
        self.deadline = NEVER  # the deadline of the first owner in the queue
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._times_out = False  # whether the last attempt to connect had no answer in time
        self.all: set[ReplicaConnection] = set()
        self.opened = 0
        self.reused = 0

    def adopt(self, limits: Limits, timeouts: Timeouts) -> None:
        """Applies limits and timeouts to later requests. Called again at a configuration reload.

        The connect timeout is the longest one of any owner. An owner with a shorter one calls
        `cancel`.
        """
        self.limits = limits
        self._timeouts = timeouts
        self._idle_most = limits.pool_idle
        self._idle_s = timeouts.pool_idle_s
        self.plans.clear()

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def connecting(self) -> int:
        return len(self._tasks)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def acquire(self, owner: Owner, *, fresh: bool = False) -> ReplicaConnection | None:
        """Return an idle connection, or None if the owner must wait.

        After None, the pool later calls `on_connected` or `on_connect_failed` of the owner. If
        `fresh`, the owner gets a new connection, as after the failure of a reused connection.
        """
        idle = self._idle
        while idle and not fresh:
            conn = idle.pop()
            if not conn.transport.is_closing():
                if conn.has_news():
                    conn.cancel()
                    continue
                self._count_reuse()
                return conn
        if self._closed:
            self._loop.call_soon(
                owner.on_connect_failed, Reason.CONNECT_FAILED, "the pool is closed"
            )
            return None
        if not self._waiters:
            self.deadline = monotonic() + self._timeouts.connect_s
            self._sweeper.add(self)
            self._waiters[owner] = self.deadline
        else:
            self._waiters[owner] = monotonic() + self._timeouts.connect_s
        if fresh:
            self._fresh.add(owner)
        self._open_more()
        return None

    def cancel(self, owner: Owner) -> None:
        """Removes an owner from the queue.

        If more connections are being opened than owners wait, the surplus is cancelled.
        """
        if owner not in self._waiters:
            return
        self._forget_waiter(owner)
        self._open_fewer()

    def put_back(self, conn: ReplicaConnection) -> None:
        """Takes back a connection whose response is complete."""
        now = monotonic()
        if self._closed or now >= conn.expires:
            conn.cancel()
        else:
            for waiter in self._waiters:
                if waiter not in self._fresh:
                    self._count_reuse()
                    self._forget_waiter(waiter)
                    waiter.on_connected(conn)
                    return
            self._rest(conn, now)

    def _rest(self, conn: ReplicaConnection, now: float) -> None:
        if len(self._idle) >= self._idle_most:
            conn.cancel()
        else:
            conn.idle_until(now + self._idle_s)
            self._idle.append(conn)

    def _count_reuse(self) -> None:
        self.reused += 1
        if self._tally is not None:
            self._tally.connections_reused += 1

    def _next_waiter(self) -> Owner:
        waiter = next(iter(self._waiters))
        self._forget_waiter(waiter)
        return waiter

    def _forget_waiter(self, waiter: Owner) -> None:
        del self._waiters[waiter]
        self._fresh.discard(waiter)
        if not self._waiters:
            self.deadline = NEVER
            self._sweeper.discard(self)

    def forget(self, conn: ReplicaConnection) -> None:
        """Removes a connection that is closed."""
        self.all.discard(conn)
        self._sweeper.discard(conn)
        if conn in self._idle:
            self._idle.remove(conn)

    def close_idle(self) -> None:
        """Closes all idle connections. They may be broken after the replica was unreachable."""
        for conn in list(self._idle):
            conn.cancel()

    def give_up(self) -> None:
        """Fails all waiting owners, because the replica must not be used any more.

        If the replica did not answer the last attempt to connect, that is also their reason.

        The owners are called by the event loop after the caller has returned, because the caller
        may be one of them.
        """
        self.close_idle()
        if self._waiters:
            self._loop.call_soon(self._release, list(self._waiters))

    def _release(self, waiters: list[Owner]) -> None:
        reason = Reason.CONNECT_TIMEOUT if self._times_out else Reason.CONNECT_FAILED
        for waiter in waiters:
            # Since the call of `give_up`, an owner may have left the queue or got a connection.
            if waiter in self._waiters:
                self._forget_waiter(waiter)
                waiter.on_connect_failed(reason, "the replica is no longer usable")
        self._open_fewer()

    def on_deadline(self, now: float) -> None:
        """Fails each owner that has waited in the queue for the connect timeout."""
        while self._waiters:
            due = next(iter(self._waiters.values()))
            if due > now:
                self.deadline = due
                break
            self._failed(Reason.CONNECT_TIMEOUT, "the replica did not accept in time")
        self._open_fewer()

    def _open_fewer(self) -> None:
        """Stops opening connections for which no owner waits any more."""
        spare = len(self._tasks) - len(self._waiters)
        for task in list(self._tasks)[: max(0, spare)]:
            task.cancel()

    def close(self) -> None:
        """Closes the idle connections and fails the waiting owners. Opens no more connections.

        Connections that carry a response stay open until the response is complete.
        """
        self._closed = True
        self.close_idle()
        for task in list(self._tasks):
            task.cancel()
        while self._waiters:
            self._next_waiter().on_connect_failed(Reason.CONNECT_FAILED, "the pool is closed")

    def abort(self) -> None:
        """Closes the pool and all its connections now, even if they carry a response."""
        self.close()
        for conn in list(self.all):
            conn.cancel()

    # -- opening ------------------------------------------------------------------------------

    def _open_more(self) -> None:
        while len(self._tasks) < min(len(self._waiters), self.limits.connecting):
            if self._closed:
                return
            task = self._loop.create_task(self._open())
            self._tasks.add(task)
            task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        err = None if task.cancelled() else task.exception()
        if err is not None:  # `_open` handles errors of the replica, so this is a router defect
            self._loop.call_exception_handler({"message": "a connection failed", "exception": err})
        self._open_more()

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                conn = await self._connect()
        except TimeoutError:
            self._failed(Reason.CONNECT_TIMEOUT, "the replica did not accept in time")
        except OSError as err:
            self._failed(connect_reason(err.errno), str(err))
        except Exception as err:  # for example, an invalid certificate or host name
            self._failed(Reason.CONNECT_FAILED, str(err))
        else:
            self._made(conn)

    async def _connect(self) -> ReplicaConnection:
        address = self.address
        hosts = [address.host]
        if address.resolve is not None:
            hosts = await address.resolve()
        error: OSError | None = None
        for host in hosts:
            if address.is_own is not None and address.is_own(host, address.port):
                error = OSError(f"{host}:{address.port} is a listener of this router")
                continue
            try:
                _, made = await self._loop.create_connection(
                    lambda: cast("asyncio.Protocol", ReplicaConnection(self)),
                    host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.server_name if address.tls else None,
                )
            except OSError as err:
                error = err
                continue
            conn: object = made
            assert isinstance(conn, ReplicaConnection)
            return conn
        raise error or OSError("the host has no address")

    def _made(self, conn: ReplicaConnection) -> None:
        if conn.transport.is_closing():
            # Nothing was sent over it, so the request may be sent to any other replica.
            self._failed(Reason.CONNECT_FAILED, "the replica closed a new connection")
            return
        self.opened += 1
        self._times_out = False
        if self._tally is not None:
            self._tally.connections_opened += 1
        self.all.add(conn)
        now = monotonic()
        conn.expires = now + self._timeouts.pool_age_s * random.uniform(0.8, 1.2)
        self._sweeper.add(conn)
        if self._closed:
            conn.cancel()
        elif self._waiters:
            self._next_waiter().on_connected(conn)
        else:
            self._rest(conn, now)

    def _failed(self, reason: Reason, detail: str) -> None:
        self._times_out = reason is Reason.CONNECT_TIMEOUT
        if self._waiters:
            self._next_waiter().on_connect_failed(reason, detail)


def connect_reason(number: int | None) -> Reason:
    """Return the reason of a failure to connect. `number`: the `errno`; None: unknown.

    NO_FILES and NO_PORTS mean that this host has no free file descriptor or no free port, which is
    not a failure of the replica.
    """
    if number in (errno.EMFILE, errno.ENFILE):
        return Reason.NO_FILES
    if number == errno.EADDRNOTAVAIL:
        return Reason.NO_PORTS
    return Reason.CONNECT_FAILED
