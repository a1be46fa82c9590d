"""A replica controlled byte by byte, which records everything it receives.

Each accepted connection runs one behaviour: an `async def behave(connection)`. Probes and polls are
answered separately (`control.py`), as an engine answers them: they never disturb a script, never
take one from the queue of scripts, and are not in `requests` and `sessions`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

from tests.harness.control import Control, Load
from tests.harness.messages import LAST_CHUNK
from tests.harness.peer import WAIT_S, Peer
from tests.harness.ports import bind_free
from tests.harness.reading import Request, RequestReader
from tests.harness.virtual_time import VirtualLoop, at_most

REST_STEPS = 20  # Number of reads of the loop in `rest`.
_BYTES_A_TOKEN = 4  # approximate bytes of a prompt token


class ReplicaConnection(Peer):
    """One accepted connection, seen from the replica."""

    def __init__(self, sock: socket.socket, replica: HostileReplica) -> None:
        super().__init__(sock)
        self.replica = replica
        self.reader = RequestReader()
        self.is_control = False  # the connection carries probes or polls
        self._fed = 0
        self._handed = 0
        self._begun = 0  # number of requests of the data path whose heads were read
        self._runs = False  # a request was read, and its answer has not ended
        self._prompt_tokens = 0  # prompt tokens of requests without an output token so far

    async def recv_head(self) -> Request:
        """The head of the next request; its body may still be arriving."""
        while self._handed >= len(self.reader.done) and self.reader.current is None:
            if not await self._read_more():
                raise AssertionError(f"no request head; {self!r}")
        self._begins()
        if self._handed < len(self.reader.done):
            return self.reader.done[self._handed]
        assert self.reader.current is not None
        return self.reader.current

    async def recv_request(self) -> Request | None:
        """The next whole request; None when the router has closed or reset the connection."""
        if self._begun <= self._handed:
            self._ends()
        while True:
            while self._handed >= len(self.reader.done):
                if not await self._read_more():
                    self._ends()
                    return None
            request = self.reader.done[self._handed]
            if self.replica.is_question(request):
                self._handed += 1
                await self.replica.control.answer(self, request)
                continue
            self._begins()
            self._handed += 1
            self._prompt_tokens += len(request.body) // _BYTES_A_TOKEN
            return request

    async def send(self, *parts: bytes) -> None:
        data = b"".join(parts)
        await super().send(data)
        self.count(data)

    def count(self, data: bytes) -> None:
        """Add the tokens in bytes of an answer, and its end, to the metrics."""
        load = self.replica.load
        tokens = data.count(b"data: {") or (b'"choices"' in data)
        if tokens:  # a hanging engine counts nothing, not even prompts
            load.generated += tokens
            load.prompt_tokens += self._prompt_tokens
            self._prompt_tokens = 0
        if data.endswith(LAST_CHUNK):
            self._ends()

    def close(self) -> None:
        self._ends()
        super().close()

    def _begins(self) -> None:
        if self._begun == self._handed:
            self._begun += 1
            self._ends()
            self._runs = True
            self.replica.load.running += 1
            self.replica.load.requests += 1

    def _ends(self) -> None:
        if self._runs:
            self._runs = False
            self.replica.load.running -= 1

    async def _read_more(self) -> bool:
        if not await self._fill_forever():
            return False
        self.reader.feed(bytes(self.received[self._fed :]))
        self._fed = len(self.received)
        assert self.reader.error is None, f"h11 refuses what came: {self.reader.error}; {self!r}"
        return True

    async def _fill_forever(self) -> bool:
        """Like `fill`, without its time limit: an idle pooled connection may stay for long."""
        data = await self._receive(256 * 1024)
        self.received += data
        return bool(data)


Behaviour = Callable[[ReplicaConnection], Awaitable[None]]


class HostileReplica:
    """A listening socket whose connections run `behave`, or first the queued `script`.

    `async with` starts it and stops it.
    """

    def __init__(
        self,
        behave: Behaviour,
        control: Control | None = None,
        *,
        models: tuple[str, ...] = ("m",),
        asked_apart: bool = True,
    ) -> None:
        self.behave = behave
        self.control = Control(models=models) if control is None else control
        self.asked_apart = asked_apart  # False: probes and polls are treated like other requests
        self.load = Load()
        self.script: deque[Behaviour] = deque()
        self.connections: list[ReplicaConnection] = []
        self.failures: list[BaseException] = []
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_listening(self) -> bool:
        return self._listener is not None

    @property
    def requests(self) -> list[Request]:
        """Every whole request of the data path, connection by connection."""
        return [
            request
            for connection in self.connections
            for request in connection.reader.done
            if not self.is_question(request)
        ]

    @property
    def sessions(self) -> list[ReplicaConnection]:
        """Connections that carried anything except probes and polls."""
        return [connection for connection in self.connections if not connection.is_control]

    def then(self, *behaviours: Behaviour) -> None:
        """Let the next connections run these, one each, before `behave` serves again."""
        self.script.extend(behaviours)

    def start(self, port: int = 0) -> None:
        """Listen; a given port restarts a stopped replica at its address.

        No other process takes the port of a stopped replica (`bind_free`).
        """
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port:
            listener.bind(("127.0.0.1", port))
        else:
            bind_free(listener)
        listener.listen(1024)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._accepting = asyncio.create_task(self._accept(listener))

    async def stop_listening(self) -> None:
        """Refuse new connections; existing ones continue."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def die(self) -> None:
        """End like a process that crashes: called by a behaviour, whose connection closes, too."""
        await self.stop_listening()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        for connection in self.connections:
            connection.close()

    async def stop(self) -> None:
        """Close everything; waiting behaviours are cancelled."""
        await self.stop_listening()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self.connections:
            connection.close()

    def is_question(self, request: Request) -> bool:
        """Whether this request is a probe or a poll that `control` answers."""
        return self.asked_apart and self.control.is_question(request)

    async def wait_for_requests(self, count: int) -> list[Request]:
        """Wait until `count` whole requests have arrived."""
        await eventually(lambda: len(self.requests) >= count, f"{count} requests at the replica")
        return self.requests

    async def wait_for_sessions(self, count: int) -> list[ReplicaConnection]:
        await eventually(lambda: len(self.sessions) >= count, f"{count} connections")
        return self.sessions

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # Not `sock_accept`: if it is cancelled just after an accept, the socket is lost.
            await readable(listener)
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as err:
                if err.errno != errno.EMFILE:
                    raise
                await asyncio.sleep(0.01)  # no file left, which a test can want
                continue
            sock.setblocking(False)
            connection = ReplicaConnection(sock, self)
            connection.is_control = True  # assumed until its first bytes show otherwise
            self.connections.append(connection)
            task = loop.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # A task that is cancelled before its first step closes nothing by itself.
            task.add_done_callback(lambda _, connection=connection: connection.close())  # type: ignore[misc]

    async def _serve(self, connection: ReplicaConnection) -> None:
        try:
            if self.asked_apart and await self._starts_with_question(connection):
                await self._answer_questions(connection)
                return
            connection.is_control = False
            behave = self.script.popleft() if self.script else self.behave
            await behave(connection)
        except ConnectionError:
            connection.ended = connection.ended or "rst"  # a failed write showed the reset
        except asyncio.CancelledError:
            pass
        except BaseException as err:
            self.failures.append(err)
        finally:
            connection.close()

    async def _starts_with_question(self, connection: ReplicaConnection) -> bool:
        """Whether the first request is a probe or a poll. Peeks, because a behaviour may want never
        to read.
        """
        sock = connection.sock
        while True:
            await readable(sock)
            try:
                seen = sock.recv(4096, socket.MSG_PEEK)
            except BlockingIOError:
                continue
            except OSError:
                return True  # reset before its first byte: not passed to a behaviour
            if not seen:
                return True
            if b"\r\n" in seen or len(seen) > 64:
                break
            await asyncio.sleep(0.001)
        method, _, target = seen.partition(b"\r\n")[0].partition(b" ")
        return self.is_question(
            Request(method=method.decode("latin-1"), target=target.decode("latin-1").split(" ")[0])
        )

    async def _answer_questions(self, connection: ReplicaConnection) -> None:
        """Answer probes and polls until the router closes the connection, or announces that it will
        not reuse it.
        """
        answered = 0
        while True:
            while len(connection.reader.done) == answered:
                if not await connection._read_more():
                    return
            request = connection.reader.done[answered]
            answered += 1
            await self.control.answer(connection, request)
            if (request.header("connection") or "").lower() == "close":
                return


async def readable(sock: socket.socket) -> None:
    """Wait, without a time limit, until the socket has something to read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sock, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sock)


async def rest(time_s: float) -> None:
    """Let the loop run for `time_s` seconds, and read its sockets many times meanwhile.

    A single sleep ends without a read if the process gets no CPU until the sleep is over. This
    function is for a peer in the same loop: it does not wait for another process.
    """
    for _ in range(REST_STEPS):
        await asyncio.sleep(time_s / REST_STEPS)


async def eventually(condition: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Wait until `condition` holds; fail with `what` if it never does."""
    try:
        async with asyncio.timeout(at_most(within_s)):
            loop = asyncio.get_running_loop()
            if isinstance(loop, VirtualLoop):
                await loop.until(condition)
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None
