"""Spreads the connections of clients evenly over the workers of one machine.

All workers accept from the same sockets, so none refuses a connection while another one lives. The
kernel may give most of them to one worker. So each worker writes its number of connections to
memory that all workers share, and a worker that has more than another one passes the next
connection on, before it has read from it. Each worker also writes when it has last run its event
loop, so a worker that hangs gets no connection from the others.

Must never: lose a connection. One that cannot be passed on stays here.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, cast

from router.core.clock import monotonic

ROW_BYTES: Final = 8
AWAY: Final = 1 << 40  # the row of a worker that does not serve: more than any number
# A worker keeps a connection if it has at most so many more than the least busy one, and the
# fraction of the latter's, because each passing costs about as much as a request.
_SPARE: Final = 1
_SPARE_PART: Final = 8
BEAT_S: Final = 0.2  # between two notes that the event loop runs
HUNG_S: Final = 1.0  # without a note: the worker gets no connections from others
# Connections that are taken in one turn of the event loop.
_AT_ONCE: Final = 64


def shared_in(descriptor: int, workers: int) -> tuple[memoryview, memoryview]:
    """Return the number of connections of each worker, and when it was last seen in monotonic
    milliseconds, in shared memory."""
    rows = memoryview(mmap.mmap(descriptor, 2 * workers * ROW_BYTES)).cast("q")
    return rows[:workers], rows[workers:]


def make_shared(workers: int) -> int:
    """Return the descriptor of memory for `shared_in`."""
    descriptor = os.memfd_create("hedgerow-connections")
    os.ftruncate(descriptor, 2 * workers * ROW_BYTES)
    return descriptor


def receiver(counts: Sequence[int], seen: Sequence[int], slot: int, now: float) -> int:
    """Return the worker to which `slot` passes its next connection, or `slot` itself.

    `seen`: when each worker was last seen, in monotonic milliseconds. `now`: in seconds.
    """
    oldest = int((now - HUNG_S) * 1000.0)
    least, found = counts[slot], slot
    for worker, count in enumerate(counts):
        if count < least and seen[worker] >= oldest:
            least, found = count, worker
    return slot if counts[slot] <= least + _SPARE + least // _SPARE_PART else found


class Balance:
    """The doors of all workers, seen by one of them."""

    def __init__(
        self, slot: int, shared: int, door: socket.socket, doors: Sequence[socket.socket]
    ) -> None:
        """`shared`: see `shared_in`. `door`: where this worker gets connections. `doors`: where
        each worker gets them."""
        self.slot = slot
        self.counts, self._seen = shared_in(shared, len(doors))
        self.passed = 0
        self._door = door
        self._doors = doors
        self._make: Callable[[], asyncio.Protocol] | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Begin to take connections; return the protocol factory for those that are accepted here.

        `make`: the factory of the protocol that serves a connection.
        """
        self._make = make
        self._door.setblocking(False)
        self._loop.add_reader(self._door.fileno(), self._take)
        self._beat()
        return self._choose

    def _beat(self) -> None:
        self._seen[self.slot] = int(monotonic() * 1000.0)
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def close(self) -> None:
        """Take no more connections. The next worker with this number takes those that wait."""
        if self._make is not None:
            self._make = None
            self._loop.remove_reader(self._door.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for sock in (self._door, *self._doors):
            sock.close()

    def _choose(self) -> asyncio.Protocol:
        make = self._make
        assert make is not None
        to = receiver(self.counts, self._seen, self.slot, monotonic())
        return make() if to == self.slot else _Passing(self, to, make)

    def give(self, to: int, descriptor: int) -> bool:
        """Pass a connection to a worker. Return False if this is not possible."""
        try:
            socket.send_fds(self._doors[to], [b"c"], [descriptor], socket.MSG_DONTWAIT)
        except OSError:
            return False
        self.counts[to] += 1  # The worker corrects this when it has the connection.
        self.passed += 1
        return True

    def _take(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                _, found, _, _ = socket.recv_fds(self._door, 1, 1, socket.MSG_DONTWAIT)
            except OSError:
                return
            for descriptor in found:
                sock = socket.socket(fileno=descriptor)
                task = self._loop.create_task(self._serve(sock))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        make = self._make
        try:
            if make is None:
                raise OSError("this worker ends")
            sock.setblocking(False)
            await self._loop.connect_accepted_socket(make, sock)
        except OSError:
            sock.close()


class _Passing(asyncio.Protocol):
    """A connection that is passed to another worker, or served here if that fails."""

    def __init__(self, balance: Balance, to: int, make: Callable[[], asyncio.Protocol]) -> None:
        self._balance = balance
        self._to = to
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        if self._balance.give(self._to, sock.fileno()):
            # The other process has the connection, so this closes only a descriptor.
            cast("asyncio.Transport", transport).abort()
            return
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
