"""A server of Redis, a link to it that can be slow or cut, and a server that is none."""

import asyncio
import subprocess
from math import inf
from signal import Signals
from typing import Self

import redis

from tests.clients.programs import program
from tests.harness import kit
from tests.harness.ports import free_port

PASSWORD = "open-sesame"


class Store:
    """A server of Redis that keeps nothing."""

    def __init__(self) -> None:
        self.port = free_port()
        self.client = redis.Redis.from_url(self.url(PASSWORD))
        self.start()

    def url(self, password: str = PASSWORD, port: int = 0) -> str:
        return f"redis://:{password}@127.0.0.1:{port or self.port}/0"

    def start(self) -> None:
        options = ("--port", f"{self.port}", "--save", "", "--requirepass", PASSWORD)
        self.process = subprocess.Popen(
            [program("redis-server"), *options], stdout=subprocess.DEVNULL
        )

    async def ready(self) -> None:
        """Wait until the server answers."""
        await kit.eventually(self._answers, "an answer of redis-server")

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def signal(self, number: Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.signal(Signals.SIGCONT)
        self.kill()
        self.client.close()


class Listener:
    """A server in this loop; `serve` gets each connection, and is cancelled at the end."""

    def __init__(self) -> None:
        self.accepted = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        try:
            await self.serve(reader, writer)
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        while self._writers:
            await asyncio.sleep(0.001)

    def cut(self) -> None:
        """End all connections. New ones are accepted."""
        for writer in self._writers:
            writer.transport.abort()


class Link(Listener):
    """Carries bytes to the server at port `to`, and back."""

    def __init__(self, to: int) -> None:
        super().__init__()
        self.to = to
        self.delay_s = 0.0
        self.late_s = 0.0  # How late the messages of subscriptions come; infinite: never.
        self.flows = asyncio.Event()
        self.flows.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.to)
        self._writers.add(back)
        answers = asyncio.ensure_future(self._carry(there, writer, is_answer=True))
        try:
            await self._carry(reader, back)
        finally:
            answers.cancel()
            await asyncio.wait([answers])
            self._writers.discard(back)
            back.transport.abort()

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_answer: bool = False
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(65_536):
                await self.flows.wait()
                is_message = is_answer and b"message" in data
                delay_s = self.delay_s + (self.late_s if is_message else 0.0)
                if delay_s == inf:
                    continue
                if delay_s:
                    loop.call_later(delay_s, _write, sink, data)
                else:
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.close()


def _write(sink: asyncio.StreamWriter, data: bytes) -> None:
    if not sink.is_closing():
        sink.write(data)


class Liar(Listener):
    """Answers the first bytes of each connection with `answer`, again and again if it `floods`."""

    def __init__(self, answer: bytes, *, floods: bool = False) -> None:
        super().__init__()
        self._answer = answer
        self._floods = floods

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(self._answer)
        while self._floods:
            await writer.drain()
            writer.write(self._answer)
        await writer.drain()


async def answers_a_part(connection: kit.ReplicaConnection) -> None:
    """The first token of a stream that does not end; a whole answer to other requests."""
    while request := await connection.recv_request():
        if b'"stream": true' in request.body:
            await connection.send(kit.SSE_HEAD, kit.chunk(kit.role()), kit.chunk(kit.token("t")))
        else:
            await connection.send(kit.completion())
