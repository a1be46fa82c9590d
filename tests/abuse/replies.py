"""Hypothesis strategies for hostile answers of replicas: content, framing, cuts and ends.

A content and its Content-Type match most of the time, and the framing is mostly correct, because
the router stops reading an answer at its first error.
"""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.abuse.dense import MIB
from tests.abuse.drawing import (
    CHUNK_SIZES,
    DENSE,
    EXTENSIONS,
    NOISE,
    SIZES,
    TEXT,
    UNITS,
    Bytes,
    chunked,
    often,
    repeated,
)
from tests.abuse.hostile import Answer
from tests.harness.messages import COMPLETION, DONE, event, head, role, token

Content = st.SearchStrategy[tuple[str, bytes]]  # the usual Content-Type of a content, and its bytes

JSON, EVENTS, LINES = "application/json", "text/event-stream", "application/x-ndjson"

# -- counts of tokens -----------------------------------------------------------------------------

_NAMES = st.sampled_from(
    [
        *("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "input_tokens"),
        *("output_tokens", "cache_read_input_tokens", "prompt_eval_count", "eval_count"),
        *("prompt_n", "predicted_n", "generated_tokens", "prompt_tokens_details"),
    ]
)
_COUNTS = st.one_of(
    st.integers(0, 5000),
    st.sampled_from([-1, -(2**63), 2**48, 2**63, 10**20, 10**400, 1.5, 1e308, -0.0]),
    st.sampled_from(["7", "", "\x00", "9" * 3000, None, True, [], [1], {}, {"cached_tokens": -1}]),
    st.sampled_from([{"usage": {"prompt_tokens": 1}}, [[[[{"completion_tokens": 10**9}]]]]]),
)
_PLACES = st.sampled_from(["usage", "timings", "meta_info", "details", "message", ""])


def _told(place: str, counts: dict[str, Any], early: bool) -> dict[str, Any]:
    """An answer that reports token counts in the given member, or at its top level."""
    said = {place: counts} if place else counts
    rest = {name: value for name, value in COMPLETION.items() if name != "usage"}
    return {**said, **rest} if early else {**rest, **said}


_TOLD = st.builds(
    _told, _PLACES, st.dictionaries(_NAMES, _COUNTS, min_size=1, max_size=4), st.booleans()
)

# -- contents -------------------------------------------------------------------------------------

_WHOLE: Bytes = st.one_of(
    st.just(json.dumps(COMPLETION).encode()),
    _TOLD.map(lambda value: json.dumps(value).encode()),
    st.lists(_TOLD, max_size=3).map(lambda value: json.dumps(value).encode()),
    DENSE,
    st.builds(
        lambda value, said, early: (
            b'{"choices":%b,%b' % (value, said[1:])
            if early
            else said[:-1] + b',"prompt_logprobs":%b}' % value
        ),
        DENSE,
        _TOLD.map(lambda value: json.dumps(value).encode()),
        st.booleans(),
    ),
    st.sampled_from([b'{"error":{"message":"m"}}', b"extra inputs priority " * 9000]),
)


def _many_events(unit: bytes, count: int, size: int, between: bytes) -> bytes:
    """One unit of bytes, repeated up to a count and a size, between content events."""
    return token("t") + unit * min(count, size // len(unit)) + between + token("u")


# Repeatable parts of a stream: events without content, events without an end, and marks that a
# relay searches for.
_EVENT_UNITS = st.sampled_from(
    [
        *(b"\n\n", b"data:\n\n", b"data: {}\n\n", b":\n\n", b": c\n", b"event: x\n\n", b"id:1\n\n"),
        *(b"\r\r", b"\r\n\r\n", b"\n", b"\r", b"data:\n", b"data: 1,\n", b"event: error\n\n"),
        *(
            b"x",
            b"\xff",
            b'"usage":',
            b'"_tokens"',
            b'"error"',
            b"\nevent: error",
            b'"_tokens"\n\n',
        ),
        *(b'data: "prompt_tokens"\n\n', b'data: {"choices":[],"usage":{"_tokens":1}}\n\n'),
        *(b'data: {"error":{"message":"m"}}\n\n', b"data: [DONE]\n\n", b"data: [[[[\n\n"),
    ]
)
_ENDLESS_UNITS = st.sampled_from(
    [b"x", b'{"a":', b"[", b'"usage":{', b'"error":{', b"\\u0000", b" "]
)


def _stream(count: int, text: str, done: bytes) -> bytes:
    return role() + token(text) * count + done


_STREAMS: Bytes = st.one_of(
    st.builds(
        _stream,
        st.sampled_from([0, 1, 5, 1000]),
        TEXT,
        st.sampled_from([DONE, b"", b"data: {", b'data: {"error":{"message":"m","code":429}}\n\n']),
    ),
    st.builds(
        _many_events,
        _EVENT_UNITS,
        st.sampled_from([50, 3000, 100_000]),
        st.sampled_from([20_000, 300_000, 300_000, MIB]),
        st.sampled_from([b"", b"\n\n"]),
    ),
    # One event without a line end.
    st.builds(
        lambda unit, size: token("t") + b"data: " + unit * (size // len(unit)),
        _ENDLESS_UNITS,
        st.sampled_from([60_000, 300_000, 2 * MIB, 5 * MIB]),
    ),
    st.builds(lambda value, end: role() + b"data: " + value + end, DENSE, st.just(b"\n\n" + DONE)),
    _TOLD.map(lambda value: role() + token("t") + event(value) + DONE),
    st.builds(lambda value, n: token("t") + event(value) * n + DONE, _TOLD, st.just(1000)),
)
_LINES: Bytes = st.one_of(
    st.builds(
        lambda value, n: (json.dumps(value).encode() + b"\n") * n,
        _TOLD,
        st.sampled_from([1, 5, 1000]),
    ),
    st.builds(lambda value: b'{"message":{"content":"x"}}\n' * 3 + value + b"\n", DENSE),
    repeated(st.sampled_from([b"{}\n", b"\n", b'{"done":true}\n', b'{"a":'])),
)
_CONTENTS: Content = st.one_of(
    st.tuples(st.just(JSON), _WHOLE),
    st.tuples(st.just(JSON), _WHOLE),
    st.tuples(st.just(EVENTS), _STREAMS),
    st.tuples(st.just(EVENTS), _STREAMS),
    st.tuples(st.just(EVENTS), _STREAMS),
    st.tuples(st.just(LINES), _LINES),
    st.tuples(st.just("text/plain"), st.one_of(repeated(UNITS), NOISE)),
)

# -- responses ------------------------------------------------------------------------------------

_STATUSES = st.one_of(
    st.sampled_from([100, 101, 103, 201, 204, 206, 302, 304, 400, 404, 413]),
    st.sampled_from([429, 499, 500, 503, 529, 599, 999, 0, -1]),
)
_TYPES = st.sampled_from([JSON, EVENTS, LINES, "text/plain", "a;b=\xff", EVENTS.upper(), ""])
_FIELDS = st.lists(
    st.sampled_from(
        [
            "retry-after: 1",
            "retry-after: 99999999999999999999",
            "connection: close",
            "connection: content-length",
            "set-cookie: a=b",
            "x-kv-cache: 9e999",
            "endpoint-load-metrics: " + "[" * 3000,
            "x: " + "y" * 70_000,
            "trailer: x",
            "content-encoding: gzip",
            "bad field",
        ]
    ),
    max_size=2,
)


def _with_length(start: str, fields: list[str], data: bytes, error: int) -> bytes:
    return head(start, [*fields, f"content-length: {max(0, len(data) + error)}"]) + data


def _to_the_end(start: str, fields: list[str], data: bytes, surplus: int) -> bytes:
    return head(start, fields) + data + b"HTTP/1.1 200 OK\r\n\r\n" * surplus


@st.composite
def _framed(draw: st.DrawFn, start: str, fields: list[str], data: bytes) -> bytes:
    build: Callable[[str, list[str], bytes, int], bytes]
    kind = draw(st.sampled_from(["length", "length", "chunks", "chunks", "chunks", "end"]))
    if kind == "chunks":
        pieces = chunked(data, draw(CHUNK_SIZES), draw(EXTENSIONS))
        return head(start, [*fields, "transfer-encoding: chunked"]) + pieces
    build, odd = (
        (_with_length, st.sampled_from([5, -5])) if kind == "length" else (_to_the_end, st.just(2))
    )
    return build(start, fields, data, draw(often(0, odd)))


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """One response, mostly with correct framing."""
    natural, content = draw(_CONTENTS)
    fields = [f"content-type: {draw(often(natural, _TYPES, 7))}", *draw(often([], _FIELDS))]
    start = f"HTTP/1.1 {draw(often(200, _STATUSES, 7))} S"
    data = draw(_framed(start, fields, content))
    before = draw(often(b"", st.sampled_from([b"HTTP/1.1 103 E\r\n\r\n" * 500, b"\r\n", b"x"]), 9))
    behind = draw(often(b"", st.sampled_from([b"surplus", data])))
    return before + data + behind


ANSWER = st.builds(
    Answer,
    st.one_of(answers(), answers(), answers(), answers(), repeated(UNITS), st.just(b"")),
    SIZES,
    st.sampled_from(["keeps", "keeps", "closes", "resets", "hangs"]),
    st.sampled_from(["request", "request", "request", "head", "nothing"]),
)
