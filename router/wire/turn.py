"""Limits the work that client connections cause in one turn of the event loop, all together.

One turn handles every socket that is ready. So many connections that each send a body that is slow
to read (chunks of one byte, JSON of tiny members) could block the loop for seconds, although each
read is short. Each connection counts its work here. When the work of a turn is used up, further
reads of `LONG` bytes or more, and further requests with such bodies, wait for the next turn, in the
order of their arrival. Shorter reads are never delayed.

libuv reads one socket up to 32 times in a row, 8 MB, before it serves another socket. So after a
read of `LARGE_READ` bytes, reading from that connection is paused until the next turn.

Must never: delay a connection for longer than the connections before it need.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from mypy_extensions import trait

LARGE_READ: Final = 128 * 1024  # minimum bytes of a large read
LONG: Final = 4 * 1024  # reads and bodies of fewer bytes are never delayed

# The work of one turn. A unit is about a microsecond of the slowest content. The last read or body
# of a turn may exceed it: one body that is decoded takes up to 40 ms (`intake/body.py`).
WORK: Final = 10_000
CHUNK: Final = 1  # the work of one chunk of a chunked body
# The work of a read of n bytes is n >> SCAN, of decoding a body n >> DECODE, and of a write
# n >> COPY.
SCAN: Final = 7
DECODE: Final = 5
COPY: Final = 11


@trait
class Delayed(ABC):
    """A connection that can wait for the next turn."""

    __slots__ = ()

    @abstractmethod
    def on_turn(self) -> None:
        """Called in the next turn. Must not raise."""


class Turn:
    """The present turn of the event loop."""

    __slots__ = ("_is_scheduled", "_waiting", "left")

    def __init__(self) -> None:
        self.left = WORK  # the work that connections may still do in this turn
        self._waiting: deque[Delayed] = deque()
        self._is_scheduled = False

    def spend(self, work: int) -> None:
        self.left -= work
        self._schedule()

    def wait(self, connection: Delayed) -> None:
        """Calls `on_turn` of the connection in the next turn that has work left."""
        self._waiting.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        self.left = WORK
        waiting = self._waiting
        for _ in range(len(waiting)):
            if self.left <= 0:
                break
            waiting.popleft().on_turn()
        if waiting:
            self._schedule()
