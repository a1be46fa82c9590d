"""One client connection: sends a chat request, reads its event stream, records times.

It uses `asyncio.Protocol`, a parser in C and one small JSON decode per token, because the load
generator shares the machine with the router and the engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import httptools
import msgspec

from bench.fleet.script import TOKEN_BYTES


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Event(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list)


_decode = msgspec.json.Decoder(_Event).decode
_PREFIX = b"data:"
_DONE = b"[DONE]"


def body(model: str, messages: list[dict[str, str]], output_tokens: int) -> bytes:
    return msgspec.json.encode(
        {
            "model": model,
            "messages": messages,
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
        }
    )


class Answer:
    """The answer to one request. `error` is empty if the whole answer arrived."""

    __slots__ = ("error", "first_at", "text", "token_times")

    def __init__(self) -> None:
        self.first_at: float | None = None  # perf_counter of the first content
        self.text = ""
        self.token_times: list[tuple[float, int]] = []  # time and bytes of content of each event
        self.error = ""

    @property
    def tokens(self) -> int:
        return len(self.text.encode()) // TOKEN_BYTES


class Link(asyncio.Protocol):
    """A keep-alive connection with one request at a time. `on_end` is called once per request."""

    def __init__(self) -> None:
        self.usable = False
        self.idle_since = 0.0
        self._transport: Any = None
        self._on_end: Callable[[Link], None] | None = None
        self._parser: Any = None
        self._buffer = b""
        self._done = False
        self._parts: list[str] = []
        self.answer = Answer()

    def ask(self, request: bytes, on_end: Callable[[Link], None]) -> None:
        self.answer = Answer()
        self._on_end = on_end
        self._parser = httptools.HttpResponseParser(self)
        self._buffer = b""
        self._parts = []
        self._done = False
        self._transport.write(request)

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # Methods of asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.usable = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._end("connection lost")

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._on_end is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end("unreadable answer")
            self.close()

    # Callbacks of the httptools parser.

    def on_body(self, data: bytes) -> None:
        if self._parser.get_status_code() != 200:
            return
        buffer = self._buffer + data if self._buffer else data
        *events, self._buffer = buffer.split(b"\n\n")
        for event in events:
            self._event(event.strip())

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.usable = False
        self._end(
            f"status {status}" if status != 200 else "" if self._done else "stream without [DONE]"
        )

    def _event(self, event: bytes) -> None:
        if not event.startswith(_PREFIX):
            return  # the line is an SSE comment
        payload = event[len(_PREFIX) :].strip()
        if payload == _DONE:
            self._done = True
            return
        try:
            decoded = _decode(payload)
        except msgspec.DecodeError:
            self.answer.error = "unreadable event"
            return
        if b'"error"' in payload and not decoded.choices:
            self.answer.error = "error event"
            return
        content = decoded.choices[0].delta.content if decoded.choices else None
        if not content:
            return
        now = perf_counter()
        if self.answer.first_at is None:
            self.answer.first_at = now
        self.answer.token_times.append((now, len(content)))
        self._parts.append(content)

    def _end(self, error: str) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            return
        self.answer.text = "".join(self._parts)
        self.answer.error = self.answer.error or error
        self.idle_since = perf_counter()
        on_end(self)
