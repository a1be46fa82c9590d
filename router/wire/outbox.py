"""Collects the writes of one turn of the event loop and makes them at the end of the turn.

A `send` costs most when it wakes a sleeping process. One turn of the event loop handles every
socket that was ready. If the writes wait for the end of the turn, the first write wakes the peer,
and the peer is awake for the other writes. With 32 connections, collecting reduces the CPU cost of
a request by a fifth. Under low load a turn has one or two writes, and collecting costs more than it
saves. So after a turn with fewer than `FEW` writes, the next `DIRECT` writes are made directly.

Must never: delay a write beyond the turn in which it was requested, reorder the writes of one
transport, or write to a transport that is closing. Code that closes a transport after writing must
call `flush` first.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from router.wire.turn import Turn

FEW: Final = 4  # with fewer writes per turn, collecting costs more than it saves
# A write of more than `LARGE` bytes is made at once. A fast replica can send many large pieces in
# one turn, and only a write shows whether the client reads fast enough.
LARGE: Final = 16 * 1024
DIRECT: Final = 64  # number of writes that are made directly before writes are collected again


class Outbox:
    """The writes that wait for the end of the present turn of the event loop."""

    __slots__ = ("_direct", "_items", "_loop", "turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.turn = Turn()  # The work that all connections may do in the present turn.
        self._items: list[Any] = []  # alternately a transport and the data to write to it
        self._direct = 0  # the number of coming writes that will be made directly

    def write(self, transport: Any, data: bytes) -> None:
        if self._direct or len(data) > LARGE:
            if self._direct:
                self._direct -= 1
            else:
                self.flush()
            if not transport.is_closing():
                transport.write(data)
            return
        items = self._items
        if not items:
            self._loop.call_soon(self._turn_ends)
        items.append(transport)
        items.append(data)

    def flush(self) -> None:
        """Makes all collected writes now."""
        items = self._items
        if not items:
            return
        self._items = []
        for at in range(0, len(items), 2):
            transport = items[at]
            if not transport.is_closing():
                transport.write(items[at + 1])

    def _turn_ends(self) -> None:
        if len(self._items) < 2 * FEW:
            self._direct = DIRECT
        self.flush()
