"""Gets token IDs from the /tokenize endpoint of a replica, which is exact for every template and
tool.

The queries use their own connections, never those of client requests. A query costs a round trip
and CPU time of the engine, so replicas are queried only if there is no local tokenizer.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

import msgspec

from router.addons.kv_events.chains import pack
from router.addons.kv_events.tokens.facts import Facts, may_hold_more_than_text, prompt_of, text_of
from router.config.in_force import InForce
from router.fleet.access import Access
from router.fleet.monitor.resolve import Resolve, remember

if TYPE_CHECKING:
    import aiohttp

_ANSWER_BYTES: Final = 16 * 1024 * 1024
_SPACES: Final = 64  # position up to which the first member of a list of prompts may begin
_CONNECTIONS: Final = 16  # maximum number of connections, to all replicas together


class Target(msgspec.Struct, frozen=True):
    """A replica to query."""

    url: str  # the URL, including the path that returns token IDs
    server_name: str | None = None  # the server name for TLS (SNI)
    host: str = ""  # the host of the URL
    resolve: Resolve | None = None  # the data plane's resolver of this host
    tls: ssl.SSLContext | None = None  # for an https URL
    access: Access | None = None  # what requests to the replica have of their own


class _Answer(msgspec.Struct):
    tokens: list[int]


_decode = msgspec.json.Decoder(_Answer).decode


def request_body(facts: Facts) -> bytes | None:
    """Return the body of a request to /tokenize; None: /tokenize cannot compute the token IDs."""
    raw = text_of(facts)
    if raw is None:
        return None
    fields = {} if facts.model is None else {"model": msgspec.Raw(msgspec.json.encode(facts.model))}
    if facts.kind == "chat":
        if may_hold_more_than_text(raw):
            return None
        fields["messages"] = msgspec.Raw(raw)
        fields["add_generation_prompt"] = msgspec.Raw(b"true")
        if facts.tools is not None:
            fields["tools"] = msgspec.Raw(facts.tools)
        if facts.template_kwargs is not None:
            fields["chat_template_kwargs"] = msgspec.Raw(facts.template_kwargs)
    elif raw[:1] == b"[":
        # /tokenize takes one text: a list of token IDs or of several prompts would be refused.
        prompt = prompt_of(raw) if raw[1:_SPACES].lstrip().startswith(b'"') else None
        if not isinstance(prompt, str):
            return None
        fields["prompt"] = msgspec.Raw(msgspec.json.encode(prompt))
    else:
        fields["prompt"] = msgspec.Raw(raw)
    return msgspec.json.encode(fields)


class RemoteTokenizer:
    """Queries replicas. Call `start` before the first query, and `stop` after the last one."""

    def __init__(self, in_force: InForce, timeout_s: float = 2.0):
        self._in_force = in_force
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._names: dict[str, Resolve] = {}  # host -> the data plane's resolver

    def start(self) -> None:
        """Open the session. Needs a running event loop."""
        import aiohttp

        from router.fleet.monitor.names import connector

        self._session = aiohttp.ClientSession(
            connector=connector(self._names, limit=_CONNECTIONS, idle_s=3.0),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def tokens(self, body: bytes, target: Target) -> bytes | None:
        """Return the packed token IDs; `None`: the replica returned no token IDs."""
        import aiohttp

        assert self._session is not None
        access = target.access
        headers = {"content-type": "application/json", **self._in_force.bearer}
        remember(self._names, target.host, target.resolve)
        try:
            async with self._session.post(
                target.url,
                data=body,
                headers=headers if access is None else access.own_fields(headers),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                allow_redirects=False,
                ssl=target.tls or True,
                server_hostname=target.server_name,
            ) as response:
                if response.status != 200:
                    return None
                pieces: list[bytes] = []
                size = 0
                async for piece in response.content.iter_chunked(65536):
                    pieces.append(piece)
                    size += len(piece)
                    if size > _ANSWER_BYTES:
                        return None
            return pack(_decode(b"".join(pieces)).tokens)
        except (
            *(aiohttp.ClientError, OSError, TimeoutError, ValueError, OverflowError),
            *(msgspec.MsgspecError, RecursionError),
        ):
            return None
