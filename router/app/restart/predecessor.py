"""The new process's side of a restart: the conversation with the process that it replaces.

Must never: accept a connection before the old process has said `Go`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Container, Iterable, MutableMapping
from typing import Final

from router.app.listeners import Listener
from router.app.restart.messages import (
    MESSAGE_BYTES,
    VARIABLE,
    Answer,
    Begin,
    Failed,
    FleetState,
    Go,
    Prepared,
    Serving,
    Worker,
    line,
    listener_of,
    read,
)
from router.core.build import VERSION
from router.core.clock import monotonic
from router.core.errors import ConfigError
from router.fleet.discovery.roster import Roster
from router.fleet.table.fleet import Fleet

# Seconds that the new process waits until its replicas are as ready as they are for the old one.
READY_WAIT_S: Final = 20.0
_LOOK_S: Final = 0.05


class Abandoned(Exception):
    """Raised if the old process does not want to be replaced any more, or has ended."""


class Predecessor:
    """The process that this process replaces. Call `connect` inside the event loop."""

    def __init__(self, sock: socket.socket, begin: Begin) -> None:
        self._sock = sock
        self._begin = begin
        self._fds = {one.fd for one in begin.sockets}
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._ended: asyncio.Task[bytes] | None = None

    @classmethod
    def find(cls, environ: MutableMapping[str, str]) -> Predecessor | None:
        """Return the process that this process is to replace; `None`: there is none.

        Removes the variable from `environ`. Raises ConfigError if the variable is not from a
        router, or if the routers do not understand each other. The old process is told why.
        """
        text = environ.pop(VARIABLE, None)
        if text is None:
            return None
        try:
            sock = socket.socket(fileno=int(text))
        except (OSError, ValueError) as err:
            raise ConfigError([f"{VARIABLE}: {err}"]) from None
        try:
            sock.set_inheritable(False)
            with sock.makefile("rb") as file:
                begin = read(file.readline(MESSAGE_BYTES), Begin)
        except (OSError, ValueError) as err:
            with sock:
                _tell(sock, Failed(f"the new process, version {VERSION}, got {err}"))
            raise ConfigError([f"{VARIABLE}: {err}"]) from None
        return cls(sock, begin)

    @property
    def fleet(self) -> FleetState:
        """The state of the fleet when the restart began."""
        return self._begin.fleet

    @property
    def ready(self) -> tuple[str, ...]:
        """The replicas to which the old process could send requests then."""
        return self._begin.ready

    @property
    def worker(self) -> Worker | None:
        """Which worker this process is; None: it serves alone."""
        return self._begin.worker

    def listeners(self) -> list[Listener]:
        """Return the listening sockets of the old process. Raises OSError."""
        return [listener_of(one) for one in self._begin.sockets]

    def failed(self, why: str) -> None:
        """Tells the old process that this process ends. May be called without an event loop."""
        _tell(self._sock, Failed(why))

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            sock=self._sock.dup(), limit=MESSAGE_BYTES
        )

    async def await_fleet(self, fleet: Fleet, roster: Roster) -> None:
        """Waits until the fleet is as ready as in the old process, for at most READY_WAIT_S.

        Raises ConfigError if no replica is ready although the old process has ready replicas, or if
        a source of discovery has not answered although it has answered the old process. The fleet
        would lose the replicas of this source.
        """
        before, sources = self._begin.ready, self._begin.fleet.sources
        deadline = asyncio.get_running_loop().time() + READY_WAIT_S
        serving = fleet.serving
        while awaited(before, fleet.replicas, serving.ready_ids) or unanswered(
            sources, roster.sizes, roster.answering
        ):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(_LOOK_S)
        if missing := unanswered(sources, roster.sizes, roster.answering):
            text = f"no answer for the new process within {READY_WAIT_S:g} s"
            raise ConfigError([f"discovery: {', '.join(missing)}: {text}"])
        if not may_take_over(before, serving.ready_ids):
            why = "; ".join(f"{r.id}: {r.why(monotonic())}" for r in fleet.replicas.values())
            text = f"no replica is up for the new process within {READY_WAIT_S:g} s: {why}"
            raise ConfigError([f"replicas: {text}"])

    async def leave(self) -> FleetState:
        """Says that this process is prepared. Returns when it may accept connections.

        Returns the state of the fleet at that time. Raises Abandoned.
        """
        assert self._reader is not None
        self._send(Prepared())
        try:
            go: Go = read(await self._reader.readline(), Go)
        except (OSError, ValueError) as err:
            raise Abandoned(str(err)) from None
        return go.fleet

    def serve(self, used: Iterable[Listener]) -> None:
        """Says that this process accepts connections on the sockets `used`."""
        assert self._reader is not None
        self._send(Serving(tuple(one.fd for one in used if one.fd in self._fds)))
        self._ended = asyncio.ensure_future(self._reader.read())

    async def end(self) -> None:
        """Waits until the old process has ended, if it was told that this process serves."""
        if self._ended is not None:
            await asyncio.wait([self._ended])
            if not self._ended.cancelled():
                self._ended.exception()

    def close(self) -> None:
        if self._ended is not None:
            self._ended.cancel()
        if self._writer is not None:
            self._writer.close()
        self._sock.close()

    def _send(self, message: Answer) -> None:
        assert self._writer is not None
        self._writer.write(line(message))


def _tell(sock: socket.socket, message: Answer) -> None:
    try:
        sock.sendall(line(message))
    except OSError:
        pass


def awaited(
    ready_before: Iterable[str], configured: Iterable[str], ready_now: Iterable[str]
) -> frozenset[str]:
    """Return the replicas that a new process waits for before it takes over.

    These are the replicas to which the old process can send requests, and the new process not yet.
    A replica that is not in the new process's fleet is not awaited.
    """
    return (frozenset(ready_before) & frozenset(configured)) - frozenset(ready_now)


def unanswered(
    sources_before: Iterable[str], sources: Container[str], answering: Container[str]
) -> list[str]:
    """Return the sources of discovery that have answered the old process, and not yet the new one.

    `sources`: the sources of the new process; a source that it does not have is not awaited.
    `answering`: those of them that have answered.
    """
    return [name for name in sources_before if name in sources and name not in answering]


def may_take_over(ready_before: Iterable[str], ready_now: Iterable[str]) -> bool:
    """Return whether a new process that has waited long enough may take over.

    A process without a replica must not replace a process that serves requests.
    """
    return any(True for _ in ready_now) or not any(True for _ in ready_before)
