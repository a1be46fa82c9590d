"""Hostile crowds as hypothesis draws them: requests, answers, and how they are cut and ended.

Most of what is drawn is nearly right: a message with one or two odd parts comes farther than noise.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.abuse.hostile import Answer, Client
from tests.abuse.victim import BAD, GOOD, PAIR
from tests.harness.messages import COMPLETION, DONE, LAST_CHUNK, head, role, token

Bytes = st.SearchStrategy[bytes]

LARGE = 300_000  # bytes of one drawn part at most
CLIENTS = 12
ANSWERS = 8


@dataclass(frozen=True)
class Crowd:
    """Clients that come at once, and what the hostile replicas do with their next connections."""

    clients: tuple[Client, ...]
    answers: tuple[Answer, ...]


def often(usual: Any, odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The usual value three times out of four."""
    return st.one_of(*(st.just(usual),) * 3, odd)


def repeated(unit: Bytes, most: int = LARGE) -> Bytes:
    """One unit again and again: large without being drawn byte by byte."""

    def build(part: bytes, count: int) -> bytes:
        return part * min(count, most // max(1, len(part)))

    return st.builds(build, unit, st.sampled_from([0, 1, 3, 50, 1000, 20_000, 300_000]))


NOISE = st.binary(max_size=200)
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
UNITS = st.one_of(
    st.sampled_from(
        [b" ", b"\n", b"[", b'{"a":', b'"a",', b"\\", b"\xff", b"0", b"\x00", b"--b\r\n"]
    ),
    st.binary(min_size=1, max_size=8),
)
SIZES = st.one_of(
    st.just(()),
    st.just(()),
    st.just((1,)),
    st.lists(st.integers(1, 3000), min_size=1, max_size=4).map(tuple),
)

# -- bodies of requests ---------------------------------------------------------------------------

MODELS = st.one_of(
    st.sampled_from(
        [BAD, PAIR, GOOD, BAD, PAIR, "", "unknown", "m:adapter", "\0", "a/b", "m" * 5000]
    ),
    st.none(),
    st.lists(st.integers(), max_size=2),
)
NUMBERS = st.one_of(
    st.integers(-3, 120),
    st.sampled_from([10**20, -(10**20), 10**400, 0.5, -0.0, 1e308]),
)
VALUES = st.one_of(NUMBERS, TEXT, st.booleans(), st.none(), st.lists(NUMBERS, max_size=3))
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "model": MODELS,
        "stream": VALUES,
        "priority": VALUES,
        "max_tokens": VALUES,
        "n": VALUES,
        "user": VALUES,
        "rid": VALUES,
        "request_id": VALUES,
        "stream_options": st.one_of(VALUES, st.fixed_dictionaries({"include_usage": VALUES})),
        "messages": st.one_of(VALUES, st.lists(st.fixed_dictionaries({"content": VALUES}))),
        "prompt": st.one_of(VALUES, st.lists(TEXT, max_size=3)),
        "previous_response_id": VALUES,
    },
)


def _object(members: dict[str, Any], stream: bool, filler: bytes, where: int) -> bytes:
    whole = {"model": BAD, "messages": [{"role": "user", "content": "x"}], "stream": stream}
    data = json.dumps({**whole, **members}).encode()
    at = (len(data), 1, len(data) - 1, len(data) // 2)[where]
    return data[:at] + filler + data[at:]


JSON = st.builds(_object, MEMBERS, st.booleans(), often(b"", repeated(UNITS)), st.integers(0, 3))
ENCODED = st.builds(
    lambda data, encode: encode(data),
    JSON,
    st.sampled_from(
        [
            lambda data: b"\xef\xbb\xbf" + data,
            lambda data: data.decode("latin-1").encode("utf-16"),
            lambda data: data.decode("latin-1").encode("utf-32-le"),
            lambda data: data[:-1] + b',"model":"n"}',
            lambda data: data[: len(data) // 2],
            lambda data: data + data,
        ]
    ),
)


def _form(disposition: bytes, filler: bytes, value: bytes, ends: bool) -> bytes:
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b"--b\r\nContent-Disposition: form-data; " + disposition + b"\r\n"
        b"X: " + filler + b"\r\n\r\n" + value + b"\r\n"
    )
    return parts + (b"--b--\r\n" if ends else b"")


FORMS = st.builds(
    _form,
    st.one_of(
        st.sampled_from(
            [b'name="file"; filename="a.jsonl"', b"name=purpose", b'name="model"', b";" * 900]
        ),
        NOISE,
    ),
    repeated(UNITS, 100_000),
    st.one_of(JSON, repeated(UNITS)),
    st.booleans(),
)
BODIES: Bytes = st.one_of(JSON, JSON, JSON, ENCODED, FORMS, repeated(UNITS), NOISE)

# -- requests -------------------------------------------------------------------------------------

TARGETS = st.one_of(
    st.sampled_from(
        [
            *("/v1/chat/completions",) * 4,
            "/v1/completions",
            "/v1/messages",
            "/v1/responses",
            "/v1/embeddings",
            "/v1/audio/transcriptions",
            "/v1/files",
            "/v1/batches",
            "/v1/models",
            "/v1/responses/resp_1/cancel",
            "/tokenize",
            "/api/chat",
            "/inference/v9/unknown",
            "/%09",
            "/../..//metrics",
            "*",
            "http://h:1/v1/models",
        ]
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40).map(lambda s: "/" + s),
)
FIELDS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "x-priority: critical",
                "x-priority: -1e999",
                "x-request-timeout-ms: 1",
                "x-request-timeout-ms: 99999999999999999999",
                "grpc-timeout: 1n",
                "authorization: Bearer a",
                "authorization: Bearer " + "k" * 5000,
                "x-request-id: " + "i" * 3000,
                "x-forwarded-for: 1.2.3.4, ::1, x",
                "connection: close, x-priority",
                "connection: upgrade",
                "upgrade: websocket",
                "expect: 100-continue",
                "content-encoding: gzip",
                "content-encoding: deflate",
                "content-type: multipart/form-data; boundary=b",
                "content-type: multipart/form-data; boundary=" + "b" * 300,
                "content-type: text/plain",
                "x_y: 1",
                "accept-encoding: br",
            ]
        ),
        st.builds("x-{}: {}".format, st.integers(0, 9), st.text("abc \t;,=\"'", max_size=30)),
        st.binary(max_size=20).map(lambda b: b.decode("latin-1")),
    ),
    max_size=5,
)


def _chunked(data: bytes, size: int, extension: str) -> bytes:
    out = bytearray()
    size = max(size, len(data) // 3000)
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        out += b"%x%b\r\n%b\r\n" % (len(piece), extension.encode(), piece)
    return bytes(out) + LAST_CHUNK


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request, its length told right most of the time."""
    method = draw(often("POST", st.sampled_from(["GET", "HEAD", "OPTIONS", "DELETE", "PUT", "X"])))
    body = b"" if method in ("GET", "HEAD") else draw(BODIES)
    fields = draw(FIELDS)
    if any("gzip" in field for field in fields) and draw(st.booleans()):
        body = gzip.compress(body, 1)
    if any("deflate" in field for field in fields) and draw(st.booleans()):
        body = zlib.compress(body, 1)
    if not any(field.startswith("content-type") for field in fields):
        fields.append("content-type: application/json")
    framing = draw(often("length", st.sampled_from(["chunked", "wrong", "both", "none"])))
    if framing == "length" and method == "POST":
        fields.append(f"content-length: {len(body)}")
    if framing == "wrong":
        fields.append(f"content-length: {draw(st.sampled_from([-1, 1, 10**18, len(body) + 7]))}")
    if framing == "both":
        fields.append(f"content-length: {len(body)}")
    if framing in ("chunked", "both"):
        fields.append("transfer-encoding: chunked")
        extension = draw(often("", st.sampled_from([";a", ';a="' + "b" * 300 + '"', " "])))
        body = _chunked(body, draw(st.sampled_from([1, 100, 100_000])), extension)
    version = draw(often("HTTP/1.1", st.sampled_from(["HTTP/1.0", "HTTP/2", "HTTP/1.1 "])))
    return head(f"{method} {draw(TARGETS)} {version}", ["host: h", *fields]) + body


def _many(one: bytes, count: int) -> bytes:
    return one * min(count, max(1, LARGE // max(1, len(one))))


CLIENT = st.builds(
    Client,
    st.one_of(
        st.builds(_many, requests(), st.sampled_from([1, 1, 1, 1, 2, 50])),
        st.builds(lambda one, cut: one[: len(one) * cut // 16], requests(), st.integers(0, 16)),
        repeated(UNITS),
    ),
    SIZES,
    st.sampled_from(["reads", "reads", "reads little", "stops", "half-closes", "resets", "closes"]),
)

# -- answers --------------------------------------------------------------------------------------


def _stream(count: int, text: str, done: bytes) -> bytes:
    return role() + token(text) * count + done


CONTENTS: Bytes = st.one_of(
    st.just(json.dumps(COMPLETION).encode()),
    st.builds(
        _stream,
        st.sampled_from([0, 1, 5, 1000]),
        TEXT,
        st.sampled_from([DONE, b"", b"data: {", b'data: {"error":{"message":"m","code":429}}\n\n']),
    ),
    st.sampled_from([b'{"error":{"message":"m"}}', b"data: [DONE]", b": c\n\n" * 1000]),
    repeated(UNITS),
    repeated(st.sampled_from([b"data: x", b"data: {}\n\n", b'"usage":{"prompt_tokens":'])),
    NOISE,
)
STATUSES = st.one_of(
    *(st.just(200),) * 4,
    st.sampled_from([100, 101, 103, 201, 204, 206, 302, 304, 400, 404, 413]),
    st.sampled_from([429, 499, 500, 503, 529, 599, 999, 0, -1]),
)
ANSWER_FIELDS = st.lists(
    st.sampled_from(
        [
            "retry-after: 1",
            "retry-after: 99999999999999999999",
            "connection: close",
            "connection: content-length",
            "set-cookie: a=b",
            "x-kv-cache: 9e999",
            "x: " + "y" * 70_000,
            "trailer: x",
            "content-encoding: gzip",
            "bad field",
        ]
    ),
    max_size=2,
)


def _with_length(status: int, fields: list[str], data: bytes, error: int) -> bytes:
    start = f"HTTP/1.1 {status} S"
    return head(start, [*fields, f"content-length: {max(0, len(data) + error)}"]) + data


def _with_chunks(status: int, fields: list[str], data: bytes, size: int) -> bytes:
    return head(f"HTTP/1.1 {status} S", [*fields, "transfer-encoding: chunked"]) + _chunked(
        data, size, ""
    )


def _to_the_end(status: int, fields: list[str], data: bytes, surplus: int) -> bytes:
    return head(f"HTTP/1.1 {status} S", fields) + data + b"HTTP/1.1 200 OK\r\n\r\n" * surplus


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """One response, framed right most of the time."""
    build: Callable[[int, list[str], bytes, int], bytes]
    build, odd = draw(
        st.sampled_from(
            [(_with_length, [0, 0, 0, 5, -5]), (_with_chunks, [1, 64, 9999]), (_to_the_end, [0, 2])]
        )
    )
    kind = draw(
        st.sampled_from(
            ["application/json", "text/event-stream", "text/event-stream", "text/plain", "a;b=\xff"]
        )
    )
    fields = [f"content-type: {kind}", *draw(often([], ANSWER_FIELDS))]
    data = build(draw(STATUSES), fields, draw(CONTENTS), draw(st.sampled_from(odd)))
    before = draw(often(b"", st.sampled_from([b"HTTP/1.1 103 E\r\n\r\n" * 500, b"\r\n", b"x"])))
    return before + data + draw(often(b"", st.sampled_from([b"surplus", data])))


ANSWER = st.builds(
    Answer,
    st.one_of(answers(), answers(), repeated(UNITS), st.just(b"")),
    SIZES,
    st.sampled_from(["keeps", "keeps", "closes", "resets", "hangs"]),
    st.sampled_from(["request", "request", "request", "head", "nothing"]),
)
CROWDS = st.builds(
    Crowd,
    st.lists(CLIENT, min_size=1, max_size=CLIENTS).map(tuple),
    st.lists(ANSWER, max_size=ANSWERS).map(tuple),
)
