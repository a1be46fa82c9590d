"""One line as a request to the router's own data port.

Over loopback and over HTTP, so that a line is routed, queued, limited, retried, counted and logged
as any request is, under its owner's Authorization and in class batch. aiohttp is imported when the
door opens, not when a configuration is checked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import aiohttp

CONNECT_S: Final = 10.0
KEEP_ALIVE_S: Final = 0.5  # lines follow each other at once, or not for long
SMALL: Final = 1024 * 1024  # an answer above this waits until few other large ones are held
LARGE_AT_ONCE: Final = 4
NO_ANSWER: Final = 0


class Answer(NamedTuple):
    status: int  # NO_ANSWER: none came, and `problem` says why
    body: bytes
    retry_after_s: float | None
    problem: str


class Sender:
    """Connections to `url`, the router's own; `longest`: the bytes of an answer at most."""

    def __init__(self, longest: int) -> None:
        import aiohttp

        self.url = ""  # known when the data port listens
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

    async def send(
        self, path: str, body: bytes, request_id: str, authorization: str | None
    ) -> Answer:
        """The whole answer. Never raises but CancelledError, which ends the request."""
        import aiohttp

        headers = {"X-Request-Id": request_id}
        if authorization is not None:
            headers["Authorization"] = authorization
        try:
            async with self._session.post(
                self.url + path, data=body, headers=headers, allow_redirects=False
            ) as response:
                return await self._read(response)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as err:
            return Answer(NO_ANSWER, b"", None, f"{type(err).__name__}: {err}")

    async def _read(self, response: aiohttp.ClientResponse) -> Answer:
        held = bytearray()
        pieces = response.content.iter_any()
        async for piece in pieces:
            held += piece
            if len(held) > SMALL:
                async with self._large:
                    async for more in pieces:
                        held += more
                        if len(held) > self._longest:
                            response.close()
                            problem = f"The answer is over {self._longest} bytes."
                            return Answer(response.status, b"", None, problem)
        wait = response.headers.get("Retry-After", "")
        return Answer(response.status, bytes(held), float(wait) if wait.isdecimal() else None, "")
