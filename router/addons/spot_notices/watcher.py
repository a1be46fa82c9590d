"""Reads notices that spot machines are reclaimed, from a file and from clouds' metadata services.

One task per source queries the source once per `spot.interval`. A notice is reported once, and
again only after it changed or disappeared, also if a reload or a restart happens meanwhile. If a
metadata service no longer reports a notice, the notice is reported as withdrawn. A file is an
announcement, so deleting it withdraws nothing. A source that does not answer is logged and queried
again, so a router outside a cloud works, too.

An empty file counts only at the second look: a program that writes a file without renaming creates
it empty.

Must never: decide what a notice means for a replica, or follow a redirect.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from router.addons.spot_notices.formats import PROVIDERS, Provider, Unreadable, read_file
from router.config.model import Config, Spot, SpotMetadata
from router.core.clock import time
from router.dispatch.addon import Addon
from router.fleet.monitor.small_file import SmallFile
from router.fleet.notice import Notice

if TYPE_CHECKING:
    import aiohttp

FILE: Final = "file"  # The source of a notice: the file, or the name of a provider.
_BYTES: Final = 64 * 1024  # A longer answer or file is not a notice.
# A session token of AWS. Other text cannot be a header value, and would make each query fail.
_SESSION_TOKEN: Final = re.compile(r"[!-~]{1,4096}\Z")

# What is queried: the path of the file, or a metadata service.
Where = str | SpotMetadata
Look = Callable[[], Awaitable[Notice | None]]


class SpotWatcher(Addon):
    """The sources of one router."""

    def __init__(
        self,
        rules: Spot,
        on_notice: Callable[[Notice, str], None],
        on_withdrawn: Callable[[Notice, str], None],
        on_problem: Callable[[str, str], None],
    ) -> None:
        """`on_notice` is called with each new notice and its source.

        `on_withdrawn` is called with a notice that its metadata service no longer reports.
        `on_problem` is called with a source and the text of its problem.
        """
        self._rules = rules
        self._on_notice = on_notice
        self._on_withdrawn = on_withdrawn
        self._on_problem = on_problem
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._tokens: dict[SpotMetadata, str] = {}
        self._file: SmallFile | None = None
        self._was_empty = False  # The file was empty at the previous look.
        # The notice that each source showed at the last successful look, if it showed one.
        self._seen: dict[Where, Notice] = {}

    @property
    def running(self) -> int:
        return len(self._tasks)

    def state(self) -> object:
        """Return the present notices, which were reported, and their sources."""
        return [*self._seen.items()] or None

    def continues(self, state: msgspec.Raw) -> None:
        """Treat these notices as reported. They were reported by the process before this one."""
        try:
            seen = msgspec.json.decode(state, type=list[tuple[Where, Notice]])
        except msgspec.MsgspecError:
            return  # From another version. The present notices are applied once more.
        for where, notice in seen:
            self._seen.setdefault(where, notice)

    async def start(self, *, waits: bool = False) -> None:
        self._begin_all()

    def _begin_all(self) -> None:
        rules = self._rules
        if rules.notice_file is not None:
            file = self._file
            if file is None or file.path != rules.notice_file:
                file = self._file = SmallFile(rules.notice_file, _BYTES)
                self._was_empty = file.path in self._seen
            self._begin(FILE, file.path, partial(self._look_at_file, file))
        for each in rules.metadata:
            self._begin(each.provider, each, partial(self._ask, each, PROVIDERS[each.provider]))

    def adopt(self, config: Config) -> None:
        """Apply a reload. If the sources changed, the tasks of all sources are started again."""
        rules = config.spot
        if rules != self._rules:
            self._cancel()
            self._rules = rules
            kept = {rules.notice_file, *rules.metadata}
            self._seen = {where: seen for where, seen in self._seen.items() if where in kept}
            self._begin_all()

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

    def _begin(self, source: str, where: Where, look: Look) -> None:
        task = asyncio.ensure_future(self._watch(source, where, look))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, source: str, where: Where, look: Look) -> None:
        while True:
            try:
                notice, seen = await look(), self._seen.get(where)
                if notice is None:
                    if seen is not None and source != FILE:
                        self._on_withdrawn(seen, source)
                    self._seen.pop(where, None)
                else:
                    if seen is None or notice.key != seen.key:
                        self._on_notice(notice, source)
                    self._seen[where] = notice
            except Exception as err:  # a source with a problem must not end the others
                self._on_problem(source, str(err) or type(err).__name__)
            await asyncio.sleep(self._rules.interval_s)

    async def _look_at_file(self, file: SmallFile) -> Notice | None:
        raw = await file.read(self._rules.timeout_s)
        was_empty, self._was_empty = self._was_empty, raw is not None and not raw.strip()
        if raw is None or (self._was_empty and not was_empty):
            return None
        return read_file(raw)

    async def _ask(self, where: SpotMetadata, provider: Provider) -> Notice | None:
        async with asyncio.timeout(self._rules.timeout_s):
            status, raw = await self._query(where, provider)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            self._tokens.pop(where, None)  # The token may have expired.
            raise Unreadable(f"GET {where.url}{provider.path} answered {status}")
        found = provider.read(raw, time(), where.machine)
        if found is None:
            return None
        replicas = (where.replica,) if where.replica else ()
        return found._replace(replicas=replicas, node=where.node)

    async def _query(self, where: SpotMetadata, provider: Provider) -> tuple[int, bytes]:
        base, headers = where.url.rstrip("/"), dict(provider.headers)
        if provider.token_path:
            headers[provider.token_field] = await self._token(where, base, provider)
        return await self._answer("GET", base + provider.path, headers)

    async def _token(self, where: SpotMetadata, base: str, provider: Provider) -> str:
        token = self._tokens.get(where)
        if token is None:
            url = base + provider.token_path
            status, raw = await self._answer("PUT", url, dict(provider.token_headers))
            if status != HTTPStatus.OK:
                raise Unreadable(f"PUT {url} answered {status}")
            token = raw.decode("latin-1").strip()
            if not _SESSION_TOKEN.match(token):
                raise Unreadable(f"PUT {url} answered no session token")
            self._tokens[where] = token
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

        # Without decompression, because a small answer could expand to any size.
        self._session = aiohttp.ClientSession(auto_decompress=False)
        return self._session
