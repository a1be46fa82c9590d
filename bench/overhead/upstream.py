"""The raw replicas: a fast server with OpenAI's API and constant answers, for measuring routers.

One process serves several ports. A JSON answer is one write of prepared bytes. A stream without
pacing gets one token per turn of the event loop, like from an engine that flushes every token.
Paced streams share one timer, and their tokens are due at different times. `GET /bench/counters`
returns the numbers of received requests and sent tokens, for comparison with the client's counts.
`GET /metrics` is like vLLM's page, so that a router can read the load.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import time
from functools import partial
from typing import Any

import httptools
import uvloop

from router.lab.overhead import shapes

TICK_S = 0.0025  # seconds between two ticks of the timer; each tick writes all tokens that are due
PIECES = 64  # a body that arrives in more pieces (about 4 MB) never requests a stream
BYTES_A_TOKEN = 4
HEAD_BYTES = 8192  # bytes; a longer request head is read by the slower HTTP parser
SLOTS = 1024  # the reported KV cache usage is the number of streams divided by this number
SPREAD_S = 0.1  # longest wait for a paced stream's first token, in seconds

_CHAT_START = b"POST /v1/chat/completions "
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CHAT = shapes.json_answer(shapes.CHAT_BODY)
_MODELS = shapes.json_answer(shapes.MODELS_BODY)
_EMPTY = shapes.json_answer(b"")
_OBJECT = shapes.json_answer(b"{}")
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nserver: uvicorn\r\n\r\n"


class Engine:
    """The counters of one port (a replica), which its metrics page shows."""

    __slots__ = ("prompt_tokens", "started_at", "tokens")

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.tokens = 0
        self.started_at = time.time()

    def page(self, running: int) -> bytes:
        """Return the metrics page in vLLM's format, with `running` streams in progress."""
        labels = '{engine="0",model_name="bench"}'
        used = min(0.9, running / SLOTS)
        lines = [
            f"process_start_time_seconds {self.started_at}",
            f"vllm:num_requests_running{labels} {running}",
            f"vllm:num_requests_waiting{labels} 0",
            f"vllm:kv_cache_usage_perc{labels} {used}",
            f"vllm:prefix_cache_queries_total{labels} {self.prompt_tokens}",
            f"vllm:prefix_cache_hits_total{labels} 0",
            f"vllm:num_preemptions_total{labels} 0",
            f"vllm:prompt_tokens_total{labels} {self.prompt_tokens}",
            f"vllm:generation_tokens_total{labels} {self.tokens}",
            'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="31250"} 1.0',
        ]
        return shapes.text_answer("\n".join([*lines, ""]).encode())


class Stream:
    """One streamed answer in progress."""

    __slots__ = ("due", "left", "owner", "period")

    def __init__(self, owner: Connection, ask: shapes.Ask) -> None:
        self.owner = owner
        self.left = ask.tokens
        self.period = 1.0 / ask.pace if ask.pace else 0.0
        self.due = 0.0


class Pacer:
    """Writes the tokens of all streams of the process: paced ones by a timer, the others in each
    turn of the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.requests = 0
        self.tokens = 0
        self._loop = loop
        self._flat: list[Stream] = []
        self._paced: list[Stream] = []
        self._pumping = False
        self._ticking = False
        self._opened = 0

    def open(self, stream: Stream) -> None:
        if not stream.period:
            self._flat.append(stream)
            if not self._pumping:
                self._pumping = True
                self._loop.call_soon(self._pump)
            return
        now = self._loop.time()
        self._opened += 1
        # Steps of the golden ratio spread any number of streams evenly over the period. The first
        # token of a slow stream is due after at most `SPREAD_S`.
        stream.due = now + min(stream.period, SPREAD_S) * ((self._opened * 0.618034) % 1.0)
        self._paced.append(stream)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK_S, self._tick, now + TICK_S)

    def running(self, engine: Engine) -> int:
        """Return the number of a port's streams in progress."""
        return sum(1 for one in (*self._flat, *self._paced) if one.owner.engine is engine)

    def _pump(self) -> None:
        self._flat = [stream for stream in self._flat if self._one(stream)]
        if self._flat:
            self._loop.call_soon(self._pump)
        else:
            self._pumping = False

    def _tick(self, planned: float) -> None:
        now = self._loop.time()
        keep: list[Stream] = []
        for stream in self._paced:
            alive = True
            while alive and stream.due <= now:
                stream.due += stream.period
                alive = self._one(stream)
            if alive:
                keep.append(stream)
        self._paced = keep
        if keep:
            planned = max(planned + TICK_S, now)
            self._loop.call_at(planned, self._tick, planned)
        else:
            self._ticking = False

    def _one(self, stream: Stream) -> bool:
        """Write one token if the client accepts it. Returns False when the stream has ended."""
        owner = stream.owner
        if owner.transport is None:
            return False
        if owner.paused:
            return True
        self.tokens += 1
        owner.engine.tokens += 1
        stream.left -= 1
        token = shapes.TOKEN_CHUNKS[stream.left & 7]
        if stream.left:
            owner.transport.write(token)
            return True
        owner.transport.write(token + shapes.LAST_CHUNKS)
        return False


def whole_chat(data: bytes) -> int:
    """Return the offset of the body if `data` is exactly one chat request, else 0.

    Most requests arrive in one read. For them, the HTTP parser would double the cost of a request.
    """
    if not data.startswith(_CHAT_START):
        return 0
    body_at = data.find(b"\r\n\r\n", 0, HEAD_BYTES) + 4
    length = _LENGTH.search(data, 0, body_at)
    if body_at < 4 or length is None or len(data) - body_at != int(length[1]):
        return 0
    return body_at


class Connection(asyncio.Protocol):
    """One keep-alive connection from a router."""

    def __init__(self, pacer: Pacer, engine: Engine) -> None:
        self.transport: asyncio.Transport | None = None
        self.engine = engine
        self.paused = False
        self._pacer = pacer
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        self._inside = False  # whether a request has begun and not ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def data_received(self, data: bytes) -> None:
        if not self._inside and (body_at := whole_chat(data)):
            self._answer(data[body_at:], len(data) - body_at)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self.transport is not None:
                self.transport.abort()

    def on_message_begin(self) -> None:
        self._inside = True
        self._url = b""
        self._body = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._inside = False
        if self.transport is None:
            return
        url = self._url
        if not url.endswith(b"/chat/completions"):
            self.transport.write(self._other(url))
            return
        pieces = self._body
        size = sum(map(len, pieces))
        if len(pieces) > PIECES:  # joining megabytes would delay all streams
            pieces = pieces[:1] + pieces[-1:]
        self._answer(pieces[0] if len(pieces) == 1 else b"".join(pieces), size)

    def _answer(self, body: bytes, size: int) -> None:
        """Answer a request of `size` bytes. `body` is all of it, or its first and last piece."""
        if self.transport is None:
            return
        self._pacer.requests += 1
        self.engine.prompt_tokens += size // BYTES_A_TOKEN
        ask = shapes.read_ask(body)
        if ask is None:
            self.transport.write(_CHAT)
            return
        # Send the response head and the first event at once.
        self.transport.write(shapes.STREAM_HEAD + shapes.ROLE_CHUNK)
        self._pacer.open(Stream(self, ask))

    def _other(self, url: bytes) -> bytes:
        if url.endswith(b"/models"):
            return _MODELS
        if url == b"/bench/counters":
            counters = {"requests": self._pacer.requests, "tokens": self._pacer.tokens}
            return shapes.json_answer(json.dumps(counters).encode())
        if url.endswith(b"/health"):
            return _EMPTY
        if url == b"/metrics":
            return self.engine.page(self._pacer.running(self.engine))
        # Routers query these endpoints when they discover an engine.
        if url.endswith((b"/server_info", b"/get_server_info", b"/model_info", b"/get_model_info")):
            return _OBJECT
        return _NOT_FOUND


async def serve(ports: int) -> None:
    """Serve until stdin closes, which happens when the parent ends."""
    loop = asyncio.get_running_loop()
    pacer = Pacer(loop)
    servers: list[Any] = []
    for _ in range(ports):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        servers.append(
            await loop.create_server(
                partial(Connection, pacer, Engine()), sock=listener, backlog=4096
            )
        )
    print(json.dumps([s.sockets[0].getsockname()[1] for s in servers]), flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    for server in servers:
        server.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
