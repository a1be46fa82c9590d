"""Sends the requests of probes and polls: a GET with limits of time and size, or a POST.

Probes and polls use connections of their own, never those of the data plane. So a replica that
hangs in a probe delays no client request. An answer is read in pieces, and each piece is passed to
a callback (the sink). Other work of the event loop runs between two pieces, so an answer of
megabytes delays other work only by the time of one piece.

Must never: follow a redirect, decompress an answer, or log.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from router.config.in_force import InForce
from router.core.errors import Reason
from router.fleet.monitor.resolve import Resolve, remember
from router.fleet.monitor.tls_failure import ssl_error_of, tls_failure
from router.fleet.replica import Replica
from router.wire.pool import connect_reason

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client import _RequestContextManager

# Reasons for missing signals: the replica could not be reached, took too long, sent too many bytes,
# answered with a status other than 200, or its answer was unreadable or had no known metrics.
# "local": this host has no free file descriptor or port, which shows nothing about the replica.
Problem = Literal["refused", "timeout", "too_large", "status", "garbage", "nothing", "local"]

_PIECE = 16 * 1024  # Bytes of an answer that are read in one turn of the event loop.
# Lifetime of an idle connection in seconds. Servers close idle connections after 5 s (uvicorn).
_IDLE_S = 3.0

# A function that takes a piece of an answer, and returns False if the answer is too large.
Sink = Callable[[bytes], bool]


class NoAnswer(Exception):
    """Raised for a request without a usable answer.

    `problem`: the reason in one word. `detail`: the reason as text for people.
    """

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(problem)
        self.problem: Problem = problem
        self.detail = detail or problem


class Asker:
    """Sends requests to many replicas. Call `close` after the last one."""

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        # Key: whether the session keeps its connections for reuse.
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        # Host -> resolver of the data plane, which keeps the addresses during a DNS outage.
        self._names: dict[str, Resolve] = {}

    @property
    def _headers(self) -> dict[str, str]:
        """The headers of a request to a replica without a credential of its own.

        If the address of a replica leads back to this router, the router refuses the request as a
        loop, because of `via` (RFC 9110 section 7.6.3). So a probe shows the loop, and no client's
        request meets it.
        """
        via = f"1.1 {self._in_force.config.via}"
        return {"accept-encoding": "identity", "via": via, **self._in_force.bearer}

    def prepare(self) -> None:
        """Load modules and files in advance, so that the first request is not delayed.

        This needs a running event loop.
        """
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
        """Send a GET and return its status. The body of a 200 answer is passed to the sink, up to
        `size` bytes.

        `keep_alive`: the connection may be reused. Raises NoAnswer.
        """
        headers = own_fields(replica, self._headers)
        with _in_one_word(replica):
            async with asyncio.timeout(timeout_s):
                if replica.endpoint.refuses:
                    await _knock(replica)
                async with self._request(
                    "GET", replica, path, headers, keep_alive=keep_alive
                ) as response:
                    try:
                        if sink is not None and response.status == 200:
                            await _read(response, sink, size)
                    except NoAnswer:
                        response.close()  # Discard the rest of the answer.
                        raise
                    replica.endpoint.server = response.headers.get("server", "")
                    return response.status

    async def post(
        self,
        replica: Replica,
        path: str,
        body: bytes,
        timeout_s: float,
        authorization: bytes | None = None,
    ) -> int:
        """Send a POST with JSON over a new connection, and return its status; the body is not read.

        `authorization`: a header line that is used if no token is configured. Raises NoAnswer.
        """
        headers = own_fields(replica, {**self._headers, "content-type": "application/json"})
        if authorization is not None and replica.access is None:
            _, _, value = authorization.partition(b":")
            headers.setdefault("authorization", value.strip().decode("latin-1"))
        with _in_one_word(replica):
            async with (
                asyncio.timeout(timeout_s),
                self._request("POST", replica, path, headers, body) as response,
            ):
                return response.status

    async def body(self, replica: Replica, path: str, timeout_s: float, size: int) -> bytes | None:
        """Send a GET.

        Returns the body of a 200 answer; None for any other status. Raises NoAnswer.
        """
        pieces: list[bytes] = []
        status = await self.get(replica, path, timeout_s, keep(pieces), size)
        return b"".join(pieces) if status == 200 else None

    def _request(
        self,
        method: str,
        replica: Replica,
        path: str,
        headers: dict[str, str],
        body: bytes | None = None,
        *,
        keep_alive: bool = False,
    ) -> _RequestContextManager:
        address = replica.pool.address
        remember(self._names, address.host, address.resolve)
        session = self._sessions.get(keep_alive) or self._open(keep_alive)
        tls, server_name = tls_of(replica)
        return session.request(
            method,
            replica.config.url.rstrip("/") + path,
            data=body,
            headers=headers,
            allow_redirects=False,
            ssl=tls,
            server_hostname=server_name,
        )

    def _open(self, keep_alive: bool) -> aiohttp.ClientSession:
        import aiohttp

        from router.fleet.monitor.names import connector

        session = self._sessions[keep_alive] = aiohttp.ClientSession(
            connector=connector(self._names, idle_s=_IDLE_S if keep_alive else None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # `asyncio.timeout` limits the time. aiohttp's own timeout is off, because it may
            # swallow a cancellation at the same moment.
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_PIECE,
        )
        return session


async def _knock(replica: Replica) -> None:
    """Connect to a replica that refused the last connection, and close the connection.

    This costs several times less CPU time than a refused request of aiohttp, and a fleet may have
    many dead replicas. Raises OSError.
    """
    address = replica.pool.address
    loop = asyncio.get_running_loop()
    refusal: OSError | None = None
    try:
        hosts = [] if address.resolve is None else await address.resolve()
    except OSError:
        return  # The request has the same error, and names it.
    for host in hosts:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
            sock.setblocking(False)
            try:
                return await loop.sock_connect(sock, (host, address.port))
            except OSError as err:
                refusal = err
    if refusal is not None:
        raise refusal


def own_fields(replica: Replica, usual: dict[str, str]) -> dict[str, str]:
    """Return the header fields of a request of the router itself to a replica.

    `usual`: the fields for replicas without a credential of their own.
    """
    access = replica.access
    return usual if access is None else access.own_fields(usual)


def tls_of(replica: Replica) -> tuple[ssl.SSLContext | bool, str | None]:
    """Return the TLS context and the server name for connections to a replica."""
    address = replica.pool.address
    return address.tls or True, address.server_name if replica.endpoint.address.is_tls else None


@contextmanager
def _in_one_word(replica: Replica) -> Iterator[None]:
    """Convert network and protocol errors to NoAnswer."""
    import aiohttp

    try:
        yield
        replica.endpoint.refuses = False
    except TimeoutError:
        raise NoAnswer("timeout", "no answer in time") from None
    except aiohttp.ClientConnectorDNSError as err:
        raise NoAnswer("refused", f"its name does not resolve: {err.os_error}") from None
    except (aiohttp.ClientConnectionError, OSError) as err:
        tls = ssl_error_of(err)
        if tls is not None:
            raise NoAnswer("refused", tls_failure(tls, replica)) from None
        number = getattr(err, "errno", None)
        detail = os.strerror(number).lower() if number else str(err) or type(err).__name__
        replica.endpoint.refuses = is_refused = connect_reason(number) is Reason.CONNECT_FAILED
        raise NoAnswer("refused" if is_refused else "local", detail[:200]) from None
    except (aiohttp.ClientError, ValueError):
        raise NoAnswer("garbage") from None


def keep(pieces: list[bytes]) -> Sink:
    """Return a sink that stores every piece of an answer."""

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
