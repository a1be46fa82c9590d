"""Sends a line of a batch file as a request to the router's own data plane.

The request uses HTTP, as from any client. So a batch line is routed, queued, limited, retried,
counted and logged as any request, in class batch and for its owner. The request contains the
client's own credentials if replicas require them. Otherwise the request contains the owner ID and a
token of this process. The data plane accepts an owner ID only with this token. aiohttp is imported
when the sender opens, not when a configuration is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from router.addons.batches.secrets import Secret
from router.core.errors import Reason
from router.core.numbers import whole_number
from router.core.unreadable import NOT_JSON

if TYPE_CHECKING:
    import aiohttp

# An idle connection is kept for this many seconds: the next line is sent at once or much later.
KEEP_ALIVE_S: Final = 0.5
# Only `LARGE_AT_ONCE` responses with more bytes than this are in memory at once.
SMALL: Final = 64 * 1024
LARGE_AT_ONCE: Final = 4
NO_ANSWER: Final = 0


class Answer(NamedTuple):
    status: int  # the HTTP status; NO_ANSWER: no response came, and `problem` has the reason
    body: bytes
    retry_after_s: float | None
    problem: str

    @property
    def is_queue_full(self) -> bool:
        """Whether the router refused the request because its queue is full."""
        try:
            return _refusal(self.body).error.code in _QUEUE_FULL
        except NOT_JSON:
            return False


class _Error(msgspec.Struct):
    code: str


class _Refusal(msgspec.Struct):
    error: _Error


_refusal = msgspec.json.Decoder(_Refusal).decode
_QUEUE_FULL: Final = frozenset(
    {
        Reason.QUEUE_FULL.value,
        Reason.QUEUE_FLOW_FULL.value,
        Reason.QUEUE_BYTES_FULL.value,
        Reason.QUEUE_EVICTED.value,
    }
)


# The type of the function that creates the data plane's protocol for a connection.
Accept = Callable[[], asyncio.BaseProtocol]


class Sender:
    """Sends requests to the data plane. Call `open` when the data plane serves requests.

    `token` authenticates the sender at the data plane. `longest` is the maximum size of a response
    in bytes.
    """

    def __init__(self, token: str, longest: int) -> None:
        self._token = token
        self._longest = longest
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    def open(self, accept: Accept) -> None:
        """Gets ready to send requests. A second call does nothing."""
        if self._session is not None:
            return
        import aiohttp

        from router.addons.batches.run.inside import Inside

        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_end.append(_connected)
        tracing.on_connection_reuseconn.append(_connected)
        self._session = aiohttp.ClientSession(
            connector=Inside(accept, KEEP_ALIVE_S),
            # The client has no timeout, because the router's timeouts end every request.
            timeout=aiohttp.ClientTimeout(total=None),
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "hedgerow-batches",
                "x-priority": "batch",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[tracing],
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def ask(
        self,
        path: str,
        body: bytes,
        request_id: str,
        owner: str,
        secret: Secret | None,
        *,
        on_connected: Callable[[], None],
    ) -> AsyncIterator[Answer]:
        """Sends a request, and yields the whole response.

        Only `LARGE_AT_ONCE` large responses exist at once, so this may wait until the `async with`
        block of another one ends. `on_connected` is called just before the request is sent. Raises
        only CancelledError, and then ends the request.
        """
        headers = self._headers(request_id, owner, secret)
        async with AsyncExitStack() as held:
            yield await self._post(path, body, headers, on_connected, held)

    def _headers(self, request_id: str, owner: str, secret: Secret | None) -> dict[str, str]:
        headers = {"X-Request-Id": request_id}
        if secret is not None:
            headers.update(secret)
        elif owner:
            headers["X-Router-Owner"] = f"{self._token} {owner}"
        return headers

    async def _post(
        self,
        path: str,
        body: bytes,
        headers: dict[str, str],
        on_connected: Callable[[], None],
        held: AsyncExitStack,
    ) -> Answer:
        import aiohttp

        assert self._session is not None
        try:
            async with self._session.post(
                "http://hedgerow" + path,
                data=body,
                headers=headers,
                allow_redirects=False,
                trace_request_ctx=on_connected,
            ) as response:
                return await self._read(response, held)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as err:
            return Answer(NO_ANSWER, b"", None, f"{type(err).__name__}: {err}")

    async def _read(self, response: aiohttp.ClientResponse, held: AsyncExitStack) -> Answer:
        body = bytearray()
        async for piece in response.content.iter_any():
            if len(body) <= SMALL < len(body) + len(piece):
                await held.enter_async_context(self._large)
            body += piece
            if len(body) > self._longest:
                response.close()
                problem = f"The answer is over {self._longest} bytes."
                return Answer(response.status, b"", None, problem)
        wait_s = whole_number(response.headers.get("Retry-After", ""), 9)
        return Answer(response.status, bytes(body), None if wait_s is None else float(wait_s), "")


async def _connected(session: object, context: Any, params: object) -> None:
    context.trace_request_ctx()
