"""Reads notices that spot machines are reclaimed, from a file and from clouds' metadata services.

One task per source queries the source once per `spot.interval`. A notice is reported once, and
again only after it changed or disappeared. A source that does not answer is logged and queried
again, so a router outside a cloud works, too. Files are read in a thread.

Must never: decide what a notice means for a replica, or follow a redirect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Final

from router.config.model import Spot, SpotMetadata
from router.fleet.monitor.small_file import read_small
from router.fleet.spot.notice import PROVIDERS, Notice, Provider, Unreadable, read_file

if TYPE_CHECKING:
    import aiohttp

FILE: Final = "file"  # The source of a notice: the file, or the name of a provider.
_BYTES: Final = 64 * 1024  # A longer answer or file is not a notice.

Look = Callable[[], Awaitable[Notice | None]]


class SpotWatcher:
    """The sources of one router. Call `start` once, and `stop` at the end."""

    def __init__(
        self,
        rules: Spot,
        on_notice: Callable[[Notice, str], None],
        on_problem: Callable[[str, str], None],
    ) -> None:
        """`on_notice` is called with each new notice and its source.

        `on_problem` is called with a source and the text of its problem.
        """
        self._rules = rules
        self._on_notice = on_notice
        self._on_problem = on_problem
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._tokens: dict[SpotMetadata, str] = {}

    @property
    def running(self) -> int:
        return len(self._tasks)

    def start(self) -> None:
        rules = self._rules
        if rules.notice_file is not None:
            self._begin(FILE, partial(self._look_at_file, rules.notice_file))
        for each in rules.metadata:
            self._begin(each.provider, partial(self._ask, each, PROVIDERS[each.provider]))

    def adopt(self, rules: Spot) -> None:
        """Apply a reload. If the sources changed, the tasks of all sources are started again."""
        if rules != self._rules:
            self._cancel()
            self._rules = rules
            self.start()

    async def stop(self) -> None:
        tasks = [*self._tasks]
        self._cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _begin(self, source: str, look: Look) -> None:
        task = asyncio.ensure_future(self._watch(source, look))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, source: str, look: Look) -> None:
        seen: str | None = None
        while True:
            try:
                async with asyncio.timeout(self._rules.timeout_s):
                    notice = await look()
                key = None if notice is None else notice.key
                if notice is not None and key != seen:
                    self._on_notice(notice, source)
                seen = key
            except Exception as err:  # a source with a problem must not end the others
                self._on_problem(source, str(err) or type(err).__name__)
            await asyncio.sleep(self._rules.interval_s)

    async def _look_at_file(self, path: str) -> Notice | None:
        raw = await asyncio.to_thread(read_small, path, _BYTES)
        return None if raw is None else read_file(raw)

    async def _ask(self, where: SpotMetadata, provider: Provider) -> Notice | None:
        base, headers = where.url.rstrip("/"), dict(provider.headers)
        if provider.token_path:
            headers[provider.token_field] = await self._token(where, base, provider)
        status, raw = await self._answer("GET", base + provider.path, headers)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            self._tokens.pop(where, None)  # The token may have expired.
            raise Unreadable(f"GET {base}{provider.path} answered {status}")
        found = provider.read(raw, time(), where.machine)
        if found is None:
            return None
        replicas = (where.replica,) if where.replica else ()
        return found._replace(replicas=replicas, node=where.node)

    async def _token(self, where: SpotMetadata, base: str, provider: Provider) -> str:
        token = self._tokens.get(where)
        if token is None:
            url = base + provider.token_path
            status, raw = await self._answer("PUT", url, dict(provider.token_headers))
            if status != HTTPStatus.OK:
                raise Unreadable(f"PUT {url} answered {status}")
            token = self._tokens[where] = raw.decode("latin-1").strip()
        return token

    async def _answer(self, method: str, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """Return the status and the body. Raises Unreadable for a body that is too long."""
        session = self._session or self._open()
        raw = b""
        async with session.request(method, url, headers=headers, allow_redirects=False) as answer:
            async for piece in answer.content.iter_any():
                raw += piece
                if len(raw) > _BYTES:
                    answer.close()
                    raise Unreadable(f"{method} {url}: the answer is larger than {_BYTES} bytes")
            return answer.status, raw

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        self._session = aiohttp.ClientSession()
        return self._session
