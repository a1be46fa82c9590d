"""Bytes of HTTP messages, chunks and server-sent events, built by hand.

Must never use the router's own writers: the tests would then agree with its mistakes.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

HOST = "router"  # Without a dot, because the admin port refuses unknown names of the public DNS.
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"

SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"

Fields = Iterable[str]


def head(start: str, fields: Fields) -> bytes:
    """A head from its start line and lines of the form `Name: value`."""
    return "\r\n".join([start, *fields, "", ""]).encode("latin-1")


def request(
    path: str = "/plain",
    *fields: str,
    method: str = "GET",
    body: bytes | None = None,
    version: str = "1.1",
    host: str | None = HOST,
) -> bytes:
    """The bytes of one whole request; a body gets its Content-Length."""
    lines = [] if host is None else [f"Host: {host}"]
    lines += fields
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return head(f"{method} {path} HTTP/{version}", lines) + (body or b"")


def post_json(path: str, value: Any, *fields: str, version: str = "1.1") -> bytes:
    """A POST whose body is `value` as JSON, or the given bytes unchanged."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return request(
        path, "Content-Type: application/json", *fields, method="POST", body=body, version=version
    )


def chat(*fields: str, stream: bool = False, version: str = "1.1", **extra: Any) -> bytes:
    """A chat completion request for the model that every test replica serves."""
    return post_json(
        "/v1/chat/completions", chat_body(stream=stream, **extra), *fields, version=version
    )


def chat_body(*, stream: bool = False, **extra: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": stream,
        **extra,
    }


def response(
    status: int = 200, *fields: str, body: bytes = b"", content_type: str = "application/json"
) -> bytes:
    """The bytes of one whole response with Content-Length."""
    return (
        head(
            f"HTTP/1.1 {status} Status",
            [f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *fields],
        )
        + body
    )


def json_response(value: Any, status: int = 200, *fields: str) -> bytes:
    return response(status, *fields, body=json.dumps(value).encode())


def without_priority(body: bytes) -> bytes:
    """A body as its client sent it: without the priority that the router adds at its end."""
    return re.sub(rb',"priority":-?[0-9.]+}\Z', b"}", body)


COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def completion(*fields: str) -> bytes:
    """A whole, successful chat completion as an engine answers it."""
    return json_response(COMPLETION, 200, *fields)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    """One server-sent event with `value` as its JSON data."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def token(text: str = "token", finish: str | None = None) -> bytes:
    """One chat completion event that carries content."""
    return _of_chat({"content": text}, finish)


def role() -> bytes:
    """The first event of an engine's chat stream: a role, and no content yet."""
    return _of_chat({"role": "assistant", "content": ""}, None)


def _of_chat(delta: dict[str, str], finish: str | None) -> bytes:
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
    )
