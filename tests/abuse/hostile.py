"""One hostile client and one hostile answer of a replica, as plain data, with their actions.

Every action has a time limit. It is not a failure if the router ends the action sooner.
"""

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tests.harness.client import RawClient
from tests.harness.peer import Peer
from tests.harness.replica import ReplicaConnection

ACT_S = 2.0  # time limit of the action of one client or of one answer, in seconds
PIECES = 4000  # maximum number of separately sent pieces; the remaining bytes are sent at once

ClientEnd = Literal["reads", "reads little", "stops", "half-closes", "resets", "closes"]
ReplicaEnd = Literal["keeps", "closes", "resets", "hangs"]


@dataclass(frozen=True)
class Client:
    """Sends bytes to the router in pieces of these sizes (repeated), and then ends the
    connection.
    """

    data: bytes
    sizes: tuple[int, ...] = ()  # sizes of the sent pieces; empty: all bytes at once
    ends: ClientEnd = "reads"
    reads_s: float = 0.5  # how long the client waits for answers, in seconds

    def __repr__(self) -> str:
        return f"Client({shown(self.data)}, sizes={self.sizes}, ends={self.ends!r})"

    async def act(self, port: int) -> None:
        """Connect to the router at this port, send the bytes, and end the connection."""
        receive_buffer = 4096 if self.ends in ("stops", "reads little") else None
        client = await RawClient.connect(port, receive_buffer=receive_buffer)
        try:
            async with asyncio.timeout(ACT_S):
                reading = asyncio.ensure_future(self._read(client))
                try:
                    await send(client, self.data, self.sizes)
                    if self.ends == "half-closes":
                        client.fin()
                    if self.ends in ("resets", "closes"):
                        await asyncio.sleep(0)
                    else:
                        async with asyncio.timeout(self.reads_s):
                            await reading
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
        except (TimeoutError, OSError):
            pass
        finally:
            if self.ends == "resets":
                client.rst()
            client.close()

    async def _read(self, client: RawClient) -> None:
        loop = asyncio.get_running_loop()
        if self.ends == "stops":
            await asyncio.sleep(ACT_S)
        size = 512 if self.ends == "reads little" else 256 * 1024
        while await loop.sock_recv(client.sock, size):
            if self.ends == "reads little":
                await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Answer:
    """Sends bytes to the router on one connection, for any request, then ends the connection."""

    data: bytes
    sizes: tuple[int, ...] = ()
    ends: ReplicaEnd = "keeps"
    # What the replica reads before it answers.
    asks: Literal["request", "head", "nothing"] = "request"

    def __repr__(self) -> str:
        return f"Answer({shown(self.data)}, sizes={self.sizes}, ends={self.ends!r}, {self.asks})"

    async def __call__(self, connection: ReplicaConnection) -> None:
        """The behaviour of one connection of a replica."""
        try:
            async with asyncio.timeout(ACT_S):
                if self.asks == "head":
                    await connection.recv_head()
                elif self.asks == "request" and await connection.recv_request() is None:
                    return
                await send(connection, self.data, self.sizes)
                connection.count(self.data)
                if self.ends == "keeps":
                    while await connection.recv_request():
                        await send(connection, self.data, self.sizes)
                elif self.ends == "hangs":
                    await asyncio.sleep(ACT_S)
        except (TimeoutError, OSError):
            pass
        if self.ends == "resets":
            connection.rst()


async def send(peer: Peer, data: bytes, sizes: tuple[int, ...]) -> None:
    """Write all bytes; raises OSError when the other side has closed the connection."""
    loop = asyncio.get_running_loop()
    for piece in pieces(data, sizes):
        await loop.sock_sendall(peer.sock, piece)
        if len(piece) < len(data):
            await asyncio.sleep(0)


def pieces(data: bytes, sizes: tuple[int, ...]) -> Iterator[bytes]:
    """The bytes cut at these sizes, repeated; uncut if there are no sizes."""
    at = 0
    for size in itertools.islice(itertools.cycle(sizes), PIECES):
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size
    if at < len(data):
        yield data[at:]


def shown(data: bytes) -> str:
    """Bytes for a report: complete, or their beginning and end."""
    if len(data) <= 2000:
        return repr(data)
    return f"{data[:1000]!r} … {len(data)} bytes … {data[-500:]!r}"
