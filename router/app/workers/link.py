"""One end of the connection between the parent and a worker.

Must never: wait, or keep more than `MOST_WAITING` unsent bytes. A frame for a process that does
not read is dropped: what workers tell each other is told again, and a question has a time limit.
`Order` and `Present`, which are few and small, are always kept.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

import msgspec

from router.app.workers.frames import (
    HEADER_BYTES,
    MOST_BYTES,
    Frame,
    Order,
    Present,
    decoded,
    encoded,
)

MOST_WAITING: Final = 16 * 1024 * 1024


class Link(asyncio.Protocol):
    """Call `open`, and at last `close`."""

    def __init__(self, hear: Callable[[Frame], None], ended: Callable[[], None]) -> None:
        """`hear` gets each frame. `ended` is called once, when the connection is lost or closed."""
        self._hear = hear
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()

    async def open(self, sock: socket.socket) -> None:
        """`sock`: the end of the connection, which belongs to this object from now on."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=sock)

    def send(self, frame: Frame) -> bool:
        """Return whether the frame will be sent."""
        return self.send_encoded(encoded(frame), is_kept=isinstance(frame, Order | Present))

    def send_encoded(self, data: bytes, *, is_kept: bool = False) -> bool:
        transport = self._transport
        if transport is None:
            return False
        if transport.get_write_buffer_size() > MOST_WAITING and not is_kept:
            return False
        transport.write(data)
        return True

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) - at >= HEADER_BYTES:
            begin = at + HEADER_BYTES
            end = begin + int.from_bytes(received[at:begin], "big")
            if end - begin > MOST_BYTES:
                self.close()
                return
            if end > len(received):
                break
            at = end
            try:
                frame = decoded(bytes(received[begin:end]))
            except msgspec.MsgspecError:
                self.close()
                return
            self._hear(frame)
        del received[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._ended()
