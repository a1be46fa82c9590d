"""Sends questions to replicas: one GET, limited in time and size, or one POST, over own
connections.

These are never the data plane's connections, so a replica that hangs here delays no request. An
answer is read in pieces and passed to a sink. The event loop runs between two pieces, so a
malicious answer of megabytes delays other work by one piece only.

Must never: follow a redirect, decompress an answer, or log.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from router.config.model import Config
from router.fleet.monitor.resolve import Resolve, remember
from router.fleet.replica import Replica

if TYPE_CHECKING:
    import aiohttp

# Reasons for missing signals: the replica could not be reached, took too long, sent too much,
# answered with a status other than 200, or its answer was unreadable or had no known metrics.
Problem = Literal["refused", "timeout", "too_large", "status", "garbage", "nothing"]

_PIECE = 16 * 1024  # Bytes of an answer between two turns of the event loop.
_IDLE_S = 3.0  # Lifetime of an idle connection. Servers close idle ones after 5 s (uvicorn).

Sink = Callable[[bytes], bool]  # Takes a piece; returns False if it is too much.


class NoAnswer(Exception):
    """A question without an answer. `problem`: one word; `detail`: more text, for people."""

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(problem)
        self.problem: Problem = problem
        self.detail = detail or problem


class Asker:
    """Asks many replicas. Call `close` after the last question."""

    def __init__(self, config: Config, token: str | None, tls: ssl.SSLContext | None) -> None:
        self._sessions: dict[bool, aiohttp.ClientSession] = {}  # by whether connections are kept
        # Host -> resolver of the data plane, which keeps the addresses during a DNS outage.
        self._names: dict[str, Resolve] = {}
        self.adopt(config, token, tls)

    def adopt(self, config: Config, token: str | None, tls: ssl.SSLContext | None) -> None:
        """Use new settings from a reload for later questions."""
        self._headers = {"accept-encoding": "identity"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._tls: ssl.SSLContext | bool = tls or True
        self._server_name = config.upstream.server_name

    def prepare(self) -> None:
        """Load what questions need, so that the first one is not delayed. Needs a running event
        loop."""
        if False not in self._sessions:
            self._open(False)

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def get(
        self,
        replica: Replica,
        path: str,
        timeout_s: float,
        sink: Sink | None = None,
        size: int = 0,
        *,
        keep_alive: bool = False,
    ) -> int:
        """The status of a GET; the body of a 200 goes to the sink, at most `size` bytes of it.

        `keep_alive`: the connection may be used again. Raises NoAnswer.
        """
        self._know(replica)
        session = self._sessions.get(keep_alive) or self._open(keep_alive)
        with _in_one_word():
            async with (
                asyncio.timeout(timeout_s),
                session.get(
                    replica.config.url.rstrip("/") + path,
                    headers=self._headers,
                    allow_redirects=False,
                    ssl=self._tls,
                    server_hostname=self._server_name if replica.address.is_tls else None,
                ) as response,
            ):
                try:
                    if sink is not None and response.status == 200:
                        await _read(response, sink, size)
                except NoAnswer:
                    response.close()  # Discard the rest of the answer.
                    raise
                return response.status

    async def post(
        self,
        replica: Replica,
        path: str,
        body: bytes,
        timeout_s: float,
        authorization: bytes | None = None,
    ) -> int:
        """The status of a POST of JSON, over a connection of its own; its answer is not read.

        `authorization`: a line of a head, where no token is configured. Raises NoAnswer.
        """
        self._know(replica)
        session = self._sessions.get(False) or self._open(False)
        headers = {**self._headers, "content-type": "application/json"}
        if authorization is not None:
            _, _, value = authorization.partition(b":")
            headers.setdefault("authorization", value.strip().decode("latin-1"))
        with _in_one_word():
            async with (
                asyncio.timeout(timeout_s),
                session.post(
                    replica.config.url.rstrip("/") + path,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    ssl=self._tls,
                    server_hostname=self._server_name if replica.address.is_tls else None,
                ) as response,
            ):
                return response.status

    async def body(self, replica: Replica, path: str, timeout_s: float, size: int) -> bytes | None:
        """The body of a 200, None for any other status. Raises NoAnswer."""
        pieces: list[bytes] = []
        status = await self.get(replica, path, timeout_s, keep(pieces), size)
        return b"".join(pieces) if status == 200 else None

    def _know(self, replica: Replica) -> None:
        address = replica.pool.address
        remember(self._names, address.host, address.resolve)

    def _open(self, keep_alive: bool) -> aiohttp.ClientSession:
        import aiohttp

        from router.fleet.monitor.names import connector

        session = self._sessions[keep_alive] = aiohttp.ClientSession(
            connector=connector(self._names, idle_s=_IDLE_S if keep_alive else None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # aiohttp's own timeouts may swallow a cancellation that comes at the same moment.
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_PIECE,
        )
        return session


@contextmanager
def _in_one_word() -> Iterator[None]:
    """Turn the network and protocol errors raised inside into NoAnswer."""
    import aiohttp

    try:
        yield
    except TimeoutError:
        raise NoAnswer("timeout", "no answer in time") from None
    except aiohttp.ClientConnectorDNSError as err:
        raise NoAnswer("refused", f"its name does not resolve: {err.os_error}") from None
    except (aiohttp.ClientConnectionError, OSError) as err:
        number = getattr(err, "errno", None)
        detail = os.strerror(number).lower() if number else str(err) or type(err).__name__
        raise NoAnswer("refused", detail[:200]) from None
    except (aiohttp.ClientError, ValueError):
        raise NoAnswer("garbage") from None


def keep(pieces: list[bytes]) -> Sink:
    """Return a sink that keeps every piece."""

    def take(piece: bytes) -> bool:
        pieces.append(piece)
        return True

    return take


async def _read(response: aiohttp.ClientResponse, sink: Sink, size: int) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NoAnswer("garbage")
    if response.content_length is not None and response.content_length > size:
        raise NoAnswer("too_large")
    left = size
    while data := await response.content.readany():
        left -= len(data)
        if left < 0:
            raise NoAnswer("too_large")
        for at in range(0, len(data), _PIECE):
            if not sink(data[at : at + _PIECE]):
                raise NoAnswer("too_large")
            if len(data) >= _PIECE:
                await asyncio.sleep(0)
