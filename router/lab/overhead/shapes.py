"""Defines the bytes of requests and answers. The answers look like vLLM's.

Routers change messages: some re-encode bodies, some drop headers that they do not know. Therefore
the parameters for the raw replica are in the prompt's text (`[bench tokens=400 pace=50]`), which
every router leaves unchanged. The client recognises an answer by marks in its text: `TOKEN_MARK` in
each streamed token, `ANSWER_MARK` at the end of a JSON answer.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

MODEL = "bench"
TOKEN_MARK = b"tok~"
ANSWER_MARK = b"end of the answer."
ASK = re.compile(rb"\[bench tokens=(\d+) pace=([0-9.]+)\]")
STREAM = re.compile(rb'"stream":\s*true')

# Response head lines as uvicorn writes them in a vLLM 0.32 server; the date is constant.
_HEAD = b"HTTP/1.1 200 OK\r\ndate: Fri, 20 Nov 2026 11:37:42 GMT\r\nserver: uvicorn\r\n"
STREAM_HEAD = (
    _HEAD
    + b"content-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\n"
    + b"transfer-encoding: chunked\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Ask:
    """The parameters of a streaming request: tokens, and tokens per second (0 means no pacing)."""

    tokens: int
    pace: float


def read_ask(body: bytes) -> Ask | None:
    """Read the parameters of a streaming request; None if a JSON answer is requested."""
    # Search for the plain bytes first: the regular expression takes long for 16 KB.
    if b'"stream"' not in body or STREAM.search(body) is None:
        return None
    found = ASK.search(body)
    return Ask(int(found[1]), float(found[2])) if found else Ask(16, 0.0)


def chunk(data: bytes) -> bytes:
    """Encode an HTTP/1.1 chunk (RFC 9112 section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def json_answer(body: bytes) -> bytes:
    return _answer(body, b"application/json")


def text_answer(body: bytes) -> bytes:
    return _answer(body, b"text/plain; version=0.0.4; charset=utf-8")


def _answer(body: bytes, kind: bytes) -> bytes:
    return _HEAD + (
        b"content-length: %d\r\ncontent-type: %b\r\nvary: Origin\r\n\r\n%b"
        % (len(body), kind, body)
    )


CHAT_BODY = (
    b'{"id":"chatcmpl-aa26d9cd3db0f89d","object":"chat.completion","created":1795174662,'
    b'"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"A hedgerow '
    b"is a line of shrubs, and this is the " + ANSWER_MARK + b'",'
    b'"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},'
    b'"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],'
    b'"service_tier":null,"system_fingerprint":null,"usage":{"prompt_tokens":28,'
    b'"total_tokens":44,"completion_tokens":16,"prompt_tokens_details":null},'
    b'"prompt_logprobs":null,"prompt_token_ids":null,"kv_transfer_params":null}'
)
MODELS_BODY = (
    b'{"object":"list","data":[{"id":"bench","object":"model","created":1795174662,'
    b'"owned_by":"vllm","root":"bench","parent":null,"max_model_len":262144}]}'
)

_EVENT = (
    b'data: {"id":"chatcmpl-803ca581ac44f6c1","object":"chat.completion.chunk",'
    b'"created":1795174662,"model":"bench","choices":[{"index":0,"delta":{%b},'
    b'"logprobs":null,"finish_reason":%b}]}\n\n'
)
ROLE_CHUNK = chunk(_EVENT % (b'"role":"assistant","content":""', b"null"))
# Successive tokens differ, because LiteLLM ends a stream that repeats a token 100 times.
TOKEN_CHUNKS = tuple(
    chunk(_EVENT % (b'"content":" %b%c"' % (TOKEN_MARK, letter), b"null")) for letter in b"abcdefgh"
)
LAST_CHUNKS = (
    chunk(_EVENT % (b'"content":""', b'"stop"')) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
)

_WORDS = (
    *("the", "of", "a", "to", "in", "and", "is", "hedge", "row", "field", "replica", "engine"),
    *("token", "batch", "prefix", "cache", "queue", "route", "request", "answer", "model", "user"),
    *("system", "prompt", "load", "fleet", "slow", "fast", "green", "shrub", "between", "along"),
)


def filler(size: int) -> str:
    """Return `size` characters of words, the same at every call."""
    rng = random.Random(0)
    page = " ".join(rng.choices(_WORDS, k=4096)) + " "
    return (page * (size // len(page) + 1))[:size]


class Prompt:
    """Generates requests of the same length, which differ only in a number at the end of the
    prompt.
    """

    def __init__(
        self, host: str, size: int = 0, ask: Ask | None = None, model: str = MODEL, limit: int = 16
    ) -> None:
        text = filler(size) if size else "What is a hedgerow, and who lives in it?"
        if ask is not None:
            text += f" [bench tokens={ask.tokens} pace={ask.pace:g}]"
            limit = ask.tokens
        before = (
            f'{{"model":"{model}","messages":[{{"role":"system","content":"You are a helpful '
            f'assistant."}},{{"role":"user","content":"{text} Question '
        ).encode()
        stream = b',"stream":true' if ask is not None else b""
        after = b'"}],"max_tokens":%d,"temperature":0.7%b}' % (limit, stream)
        self.body_bytes = len(before) + 10 + len(after)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n"
            f"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 3.52.0\r\n"
            f"Authorization: Bearer sk-bench\r\nContent-Length: {self.body_bytes}\r\n\r\n"
        ).encode()
        self._before = head + before
        self._after = after
        self._count = 0

    @property
    def ends(self) -> tuple[bytes, bytes]:
        """The bytes before and after the ten digits in which requests differ."""
        return self._before, self._after

    def next(self) -> bytes:
        self._count += 1
        return b"%b%010d%b" % (self._before, self._count, self._after)

    def next_parts(self) -> tuple[bytes, bytes]:
        """Return the next request's bytes in two pieces. The large piece is not copied."""
        self._count += 1
        return self._before, b"%010d%b" % (self._count, self._after)
