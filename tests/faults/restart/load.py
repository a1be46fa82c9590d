"""Clients of a router that restarts: streams, new connections, and connections that are kept.

Every failure is counted by its kind. A client never repeats a request.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, request, role, token
from tests.harness.replica import Behaviour, ReplicaConnection

REFUSED, NO_ANSWER, CUT = "refused", "no answer", "cut"
KEPT_PAUSE_S = 0.3  # a kept connection is idle for this time between two requests


def slow_stream(tokens: int, gap_s: float) -> Behaviour:
    """A replica whose streams take `tokens` times `gap_s` seconds."""

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD, chunk(role()))
            for n in range(tokens):
                await asyncio.sleep(gap_s)
                await connection.send(chunk(token(f"t{n}")))
            await connection.send(chunk(DONE), LAST_CHUNK)

    return behave


class Load:
    """The clients of one port. `done` and `failed` count their requests by kind of client."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.done: Counter[str] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()
        self.streaming = 0  # streams that have begun and not ended
        self._is_over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, streams: int, connects_per_s: float, kept: int) -> None:
        """Start `streams` clients that stream all the time, `kept` clients with a connection
        each that sends one request after another, and new connections at a rate.
        """
        for _ in range(streams):
            self._begin(self._again(self._stream))
        for _ in range(kept):
            self._begin(self._again(self._keep))
        self._begin(self._connect_at(connects_per_s))

    async def end(self) -> None:
        """Begin no more requests, and wait for those in progress."""
        self._is_over.set()
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _again(self, once: Callable[[], Awaitable[None]]) -> None:
        while not self._is_over.is_set():
            await once()

    async def _connect_at(self, rate: float) -> None:
        loop = asyncio.get_running_loop()
        begun, count = loop.time(), 0
        while not self._is_over.is_set():
            count += 1
            self._begin(self._connect())
            await asyncio.sleep(begun + count / rate - loop.time())

    async def _stream(self) -> None:
        async with asyncio.timeout(60):
            with self._opened("stream") as opening:
                reader, writer = await opening
                self.streaming += 1
                try:
                    writer.write(chat("Connection: close", stream=True))
                    data = await reader.read()
                finally:
                    self.streaming -= 1
                    writer.close()
                whole = b"[DONE]" in data and data.endswith(LAST_CHUNK)
                self._count("stream", whole, CUT if b"data:" in data else NO_ANSWER)

    async def _connect(self) -> None:
        with self._opened("connect") as opening:
            reader, writer = await opening
            try:
                writer.write(request("/v1/models", "Connection: close"))
                data = await reader.read()
            finally:
                writer.close()
            self._count("connect", data.startswith(b"HTTP/1.1 200 "), NO_ANSWER)

    async def _keep(self) -> None:
        """Send requests over one connection until an answer says that it was the last one."""
        with self._opened("kept") as opening:
            reader, writer = await opening
            try:
                while not self._is_over.is_set():
                    writer.write(request("/v1/models"))
                    head = await reader.readuntil(b"\r\n\r\n")
                    size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                    await reader.readexactly(size)
                    self._count("kept", head.startswith(b"HTTP/1.1 200 "), NO_ANSWER)
                    if b"connection: close" in head.lower():
                        self.done["moved"] += 1
                        return
                    await asyncio.sleep(KEPT_PAUSE_S)
            finally:
                writer.close()

    def _count(self, kind: str, succeeded: bool, failure: str) -> None:
        if succeeded:
            self.done[kind] += 1
        else:
            self.failed[kind, failure] += 1

    @contextmanager
    def _opened(
        self, kind: str
    ) -> Iterator[Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
        """Count every error of a client. Connect with the yielded awaitable."""
        is_connected = False

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            nonlocal is_connected
            both = await asyncio.open_connection("127.0.0.1", self.port)
            is_connected = True
            return both

        try:
            yield connect()
        except (OSError, EOFError) as err:
            self.failed[kind, f"{type(err).__name__}" if is_connected else REFUSED] += 1
