"""Limits the work that connections cause in one turn of the event loop, all together.

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
from collections import deque
from collections.abc import Callable
from typing import Final

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
COPY: Final = 9


class Turn:
    """The present turn of the event loop."""

    __slots__ = ("_is_scheduled", "_length_s", "_waiting", "left")

    def __init__(self, length_s: float = 0.0) -> None:
        """`length_s`: a turn ends this many seconds after its first work; 0: with the loop's."""
        self.left = WORK  # the work that connections may still do in this turn
        self._length_s = length_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def spend(self, work: int) -> None:
        self.left -= work
        self._schedule()

    def wait(self, read: Callable[[], None]) -> None:
        """Calls `read` of a connection in the next turn that has work left."""
        self._waiting.append(read)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            loop = asyncio.get_running_loop()
            if self._length_s:
                loop.call_later(self._length_s, self._begin)
            else:
                loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        self.left = WORK
        waiting = self._waiting
        try:
            for _ in range(len(waiting)):
                if self.left <= 0:
                    break
                waiting.popleft()()
        finally:
            if waiting:
                self._schedule()
