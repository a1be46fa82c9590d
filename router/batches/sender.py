"""One line as a request to the router's own data port.

Over loopback and over HTTP, so that a line is routed, queued, limited, retried, counted and logged
as any request is, in class batch and for its owner: under the client's own credentials where
replicas ask for them, else by the owner's name, which the data port believes whoever knows this
process's token. aiohttp is imported when the door opens, not when a configuration is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from router.batches.secrets import Secret

if TYPE_CHECKING:
    import aiohttp

CONNECT_S: Final = 10.0
KEEP_ALIVE_S: Final = 0.5  # lines follow each other at once, or not for long
SMALL: Final = 64 * 1024  # bytes; of larger answers only a few are in memory at once
LARGE_AT_ONCE: Final = 4
NO_ANSWER: Final = 0


class Answer(NamedTuple):
    status: int  # NO_ANSWER: none came, and `problem` says why
    body: bytes
    retry_after_s: float | None
    problem: str


class Sender:
    """Connections to `url`, the router's own, which knows our `token`; `longest`: the bytes of an
    answer at most."""

    def __init__(self, token: str, longest: int) -> None:
        import aiohttp

        self.url = ""  # known when the data port listens
        self._token = token
        self._longest = longest
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._session = aiohttp.ClientSession(
            # Ourselves: there is nobody to be mistaken for, and our certificate names no loopback.
            connector=aiohttp.TCPConnector(limit=0, ssl=False, keepalive_timeout=KEEP_ALIVE_S),
            # How long a line may take is the router's to say; it ends every request.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "hedgerow-batches",
                "x-priority": "batch",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def ask(
        self, path: str, body: bytes, request_id: str, owner: str, secret: Secret | None
    ) -> AsyncIterator[Answer]:
        """The whole answer; a large one is one of few until the block ends.

        Never raises but CancelledError, which ends the request.
        """
        async with AsyncExitStack() as held:
            yield await self._post(path, body, self._headers(request_id, owner, secret), held)

    def _headers(self, request_id: str, owner: str, secret: Secret | None) -> dict[str, str]:
        headers = {"X-Request-Id": request_id}
        if secret is not None:
            headers.update(secret)
        elif owner:
            headers["X-Router-Owner"] = f"{self._token} {owner}"
        return headers

    async def _post(
        self, path: str, body: bytes, headers: dict[str, str], held: AsyncExitStack
    ) -> Answer:
        import aiohttp

        try:
            async with self._session.post(
                self.url + path, data=body, headers=headers, allow_redirects=False
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
        wait = response.headers.get("Retry-After", "")
        return Answer(response.status, bytes(body), float(wait) if wait.isdecimal() else None, "")
