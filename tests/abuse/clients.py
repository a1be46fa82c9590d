"""Hypothesis strategies for hostile clients: requests, and how they are framed, cut and ended.

Most generated requests are nearly valid: a request with one or two odd parts reaches more code than
noise. A body, its path and its Content-Type match most of the time, and so do a method, a body and
its length: a request that is refused at its head tests nothing behind the head.
"""

import gzip
import json
import zlib
from typing import Any

from hypothesis import strategies as st

from tests.abuse.drawing import (
    CHUNK_SIZES,
    DENSE,
    EXTENSIONS,
    LARGE,
    NOISE,
    SIZES,
    UNITS,
    VALUES,
    Bytes,
    chunked,
    often,
    repeated,
)
from tests.abuse.hostile import Client
from tests.abuse.victim import BAD, GOOD, PAIR
from tests.harness.messages import LAST_CHUNK, head

# -- bodies ---------------------------------------------------------------------------------------

_CHAT = {"messages": [{"role": "user", "content": "x"}]}
# Each path, with a body that an engine would accept except for the missing `model`.
USUAL: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": {"prompt": "x"},
    "/v1/messages": {**_CHAT, "max_tokens": 9, "system": "x"},
    "/v1/responses": {"input": "x"},
    "/v1/embeddings": {"input": ["x", "y"]},
    "/v1/rerank": {"query": "x", "documents": ["y"]},
    "/v1/score": {"text_1": "x", "text_2": ["y"]},
    "/v1/audio/speech": {"input": "x", "voice": "v"},
    "/tokenize": {"prompt": "x"},
    "/invocations": _CHAT,
    "/generate": {"text": "x", "sampling_params": {"max_new_tokens": 9}},
    "/generate_stream": {"inputs": "x", "parameters": {"max_new_tokens": 9}},
    "/vertex_generate": {"instances": [{"text": "x"}], "parameters": {"max_new_tokens": 9}},
    "/api/chat": {**_CHAT, "options": {"num_predict": 9}, "keep_alive": "5m"},
    "/api/generate": {"prompt": "x", "options": {"num_predict": 9}},
    "/api/embed": {"input": ["x"], "truncate": True},
    "/inference/v9/unknown": {"x": 1},
}
_MODELS = st.one_of(
    st.sampled_from([GOOD, "", "unknown", "m:adapter", "\0", "a/b", "m" * 5000]),
    st.none(),
    st.lists(st.integers(), max_size=2),
)
_STREAM_OPTIONS = st.fixed_dictionaries({"include_usage": VALUES})
_MEMBERS = st.one_of(
    *(
        st.tuples(st.just(name), VALUES)
        for name in (
            *("stream", "priority", "max_tokens", "n", "user", "rid", "request_id", "seed"),
            *("previous_response_id", "prompt", "text", "input_ids", "lora_path", "session_id"),
            *("background", "keep_alive", "best_of", "tools", "stop", "logprobs", "dimensions"),
        )
    ),
    st.tuples(st.just("model"), _MODELS),
    st.tuples(st.just("stream_options"), st.one_of(VALUES, _STREAM_OPTIONS)),
    st.tuples(st.just("messages"), st.lists(st.fixed_dictionaries({"content": VALUES}))),
    st.tuples(
        st.sampled_from(["parameters", "sampling_params", "options", "extra_body"]),
        st.dictionaries(
            st.sampled_from(["priority", "lora_path", "adapter_id", "n", "max_new_tokens"]), VALUES
        ),
    ),
)
_ODD_MEMBERS = st.lists(_MEMBERS, max_size=3).map(dict)
_DENSE_MEMBERS = st.sampled_from(
    [
        *("messages", "prompt", "input", "text", "instances", "x", "x"),
        *("model", "stream", "priority", "stream_options", "parameters", "sampling_params"),
        *("previous_response_id", "user", "rid", "input_ids", "tools", "metadata", "documents"),
    ]
)


def _with_filler(whole: bytes, filler: bytes, where: int) -> bytes:
    at = (len(whole), 1, len(whole) - 1, len(whole) // 2)[where]
    return whole[:at] + filler + whole[at:]


def _with_dense(whole: bytes, name: str, value: bytes, where: int) -> bytes:
    """Add a member with a dense value to an object, before or after its members; or return an
    object of only this member, or only the value.
    """
    member = b'"%b":%b' % (name.encode(), value)
    if where == 0:
        return b"{" + member + b"," + whole[1:]
    if where == 1:
        return whole[:-1] + b"," + member + b"}"
    return b"{" + member + b"}" if where == 2 else value


def _twice(whole: bytes, name: str) -> bytes:
    return whole[:-1] + b',"%b":"n"}' % name.encode()


_ENCODINGS = st.sampled_from(
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.decode("latin-1").encode("utf-16"),
        lambda data: data.decode("latin-1").encode("utf-32-le"),
        lambda data: data[: len(data) // 2],
        lambda data: data + data,
    ]
)


@st.composite
def objects(draw: st.DrawFn, path: str) -> bytes:
    """The body of a path as JSON, mostly with one odd part."""
    members = {
        "model": draw(st.sampled_from([BAD, BAD, PAIR])),
        "stream": draw(st.booleans()),
        **USUAL.get(path, {}),
    }
    kind = draw(st.sampled_from(["odd", "odd", "odd", "dense", "dense", "dense", "twice", "more"]))
    if kind == "odd":
        return json.dumps({**members, **draw(_ODD_MEMBERS)}).encode()
    whole = json.dumps(members).encode()
    if kind == "dense":
        where = draw(st.sampled_from([0, 0, 1, 1, 2, 3]))
        return _with_dense(whole, draw(_DENSE_MEMBERS), draw(DENSE), where)
    if kind == "twice":
        return _twice(whole, draw(st.sampled_from(["model", "stream", "priority", "rid"])))
    if draw(st.booleans()):
        return _with_filler(whole, draw(repeated(UNITS)), draw(st.integers(0, 3)))
    encoded: bytes = draw(_ENCODINGS)(whole)
    return encoded


def _form(disposition: bytes, filler: bytes, value: bytes, ends: bool) -> bytes:
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b"--b\r\nContent-Disposition: form-data; " + disposition + b"\r\n"
        b"X: " + filler + b"\r\n\r\n" + value + b"\r\n"
    )
    return parts + (b"--b--\r\n" if ends else b"")


_FORMS = st.builds(
    _form,
    often(
        b'name="file"; filename="a.jsonl"',
        st.one_of(st.sampled_from([b"name=purpose", b'name="model"', b";" * 900]), NOISE),
    ),
    often(b"y", repeated(UNITS, 100_000)),
    st.one_of(repeated(UNITS), DENSE),
    often(True, st.just(False)),
)

# -- requests -------------------------------------------------------------------------------------

FORM = "multipart/form-data; boundary=b"
JSON = "application/json"
JSON_TARGETS = st.one_of(
    st.sampled_from(["/v1/chat/completions", "/v1/responses"]), st.sampled_from(list(USUAL))
)
_FORM_TARGETS = st.sampled_from(
    ["/v1/audio/transcriptions", "/v1/audio/translations", "/v1/files", "/inference/v9/form"]
)
_ODD_TARGETS = st.one_of(
    st.sampled_from(
        [
            *("/v1/models", "/v1/batches", "/v1/files", "/v1/responses/resp_1/cancel"),
            *("/%09", "/../..//metrics", "*", "http://h:1/v1/models", "/health", "/generate/"),
        ]
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40).map(lambda s: "/" + s),
)
METHODS = often("POST", st.sampled_from(["PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "X"]))
_BODILESS = ("GET", "HEAD", "OPTIONS")
_ODD_TYPES = st.sampled_from(
    [
        *((JSON, FORM), (FORM, JSON), (JSON, JSON), (), (), ("application/json; charset=utf-8",)),
        *(("application/json; charset=utf-16",), ("APPLICATION/JSON ; x",), ("text/plain",)),
        *(("multipart/form-data",), ("multipart/form-data; boundary=" + "b" * 300,), ("",)),
    ]
)
_CONTENT_ENCODINGS = st.sampled_from(
    [
        "gzip",
        "gzip",
        "gzip",
        "deflate",
        "br",
        "identity",
        "GZIP",
        "gzip, gzip",
        "x-gzip",
        "",
        "identity, gzip",
    ]
)
_FIELDS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "x-priority: critical",
                "x-priority: -1e999",
                "x-request-timeout-ms: 1",
                "x-request-timeout-ms: 99999999999999999999",
                "grpc-timeout: 1n",
                "authorization: Bearer a",
                "authorization: Bearer a key",
                "authorization: Bearer " + "k" * 5000,
                "x-router-model: n",
                "x-session-id: " + "s" * 2000,
                "x-request-id: " + "i" * 3000,
                "x-forwarded-for: 1.2.3.4, ::1, x",
                "x-forwarded-for: " + "1.1.1.1," * 700,
                "connection: close, x-priority",
                "connection: upgrade",
                "upgrade: websocket",
                "expect: 100-continue",
                "x_y: 1",
                "accept-encoding: br",
            ]
        ),
        st.builds("x-{}: {}".format, st.integers(0, 9), st.text("abc \t;,=\"'", max_size=30)),
        st.integers(50, 99).map(lambda n: "\r\n".join(f"x-{i}: {i}" for i in range(n))),
        st.binary(max_size=20).map(lambda b: b.decode("latin-1")),
    ),
    min_size=1,
    max_size=3,
)
_BEHIND = st.sampled_from(
    [b"x", b"5\r\nhello\r\n", b"\r\n" * 1000, b"0\r\n\r\n" * 1000, b"a: b\r\n\r\n", b"\x00" * 900]
)
_LAST = st.sampled_from(
    [
        b"",
        b"0\r\n",
        b"0\r\nx: y\r\n\r\n",
        b"0\r\n" + b"x: y\r\n" * 9000 + b"\r\n",
        b"00000000\r\n\r\n",
        b"0;a=b\r\n\r\n",
        b"fffffffffffffffff\r\nx\r\n",
        b"-1\r\nx\r\n",
        b"9\r\nshort\r\n0\r\n\r\n",
        b"2\r\nlong\r\n0\r\n\r\n",
        b"\r\n" * 9000,
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One generated request whose parts mostly match: method, path, fields, body and framing."""
    method = draw(METHODS)
    kind = draw(st.sampled_from(["json"] * 7 + ["form"] * 2 + ["odd"]))
    if kind == "json":
        path = draw(JSON_TARGETS)
        body, natural = draw(objects(path)), JSON
    elif kind == "form":
        path = draw(_FORM_TARGETS)
        body, natural = draw(_FORMS), FORM
    else:
        path = draw(_ODD_TARGETS)
        body, natural = draw(st.one_of(objects(path), repeated(UNITS), NOISE)), JSON
    fields = ["host: h", *draw(often([], _FIELDS, 3))]
    fields += [f"content-type: {value}" for value in draw(often((natural,), _ODD_TYPES, 7))]
    encoding = draw(often(None, _CONTENT_ENCODINGS, 6))
    if encoding is not None:
        fields.append(f"content-encoding: {encoding}")
        compress = {"gzip": lambda data: gzip.compress(data, 1), "deflate": zlib.compress}
        body = compress.get(encoding, bytes)(body)
    if method in _BODILESS and draw(st.booleans()):
        body = b""
    fields, body = draw(_framed(fields, body))
    version = draw(often("HTTP/1.1", st.sampled_from(["HTTP/1.0", "HTTP/2", "HTTP/1.1 "]), 15))
    return head(f"{method} {path} {version}", fields) + body


@st.composite
def _framed(draw: st.DrawFn, fields: list[str], body: bytes) -> tuple[list[str], bytes]:
    """The fields and bytes that mark the body's end; correct most of the time."""
    framing = draw(
        st.sampled_from(
            ["length"] * 9 + ["chunks"] * 4 + ["odd chunks"] * 2 + ["wrong", "both", "none"]
        )
    )
    if framing in ("length", "both"):
        fields = [*fields, f"content-length: {len(body)}"]
    if framing == "wrong":
        wrong = draw(st.sampled_from([-1, 1, 10**18, len(body) + 7, "+3", "0x3", "3, 3", ""]))
        fields = [*fields, f"content-length: {wrong}"]
    if framing in ("chunks", "odd chunks", "both"):
        coding = "chunked"
        last, behind = LAST_CHUNK, b""
        if framing == "odd chunks":
            coding = draw(
                often(coding, st.sampled_from(["Chunked", "gzip, chunked", "chunked, chunked"]))
            )
            last, behind = draw(st.one_of(st.just(LAST_CHUNK), _LAST)), draw(_BEHIND)
        fields = [*fields, f"transfer-encoding: {coding}"]
        body = chunked(body, draw(CHUNK_SIZES), draw(EXTENSIONS), last) + behind
    return fields, body


# Empty lines before a request: a few, which are ignored, or as many as the read buffer holds.
_BLANKS: Bytes = st.builds(
    lambda unit, count: unit * count,
    st.sampled_from([b"\r\n", b"\r\n", b"\n", b"\n\r\n", b"\r", b" \r\n"]),
    st.sampled_from([1, 1, 2, 2, 4, 8, 30, 1000, 60_000]),
)


def _pipelined(before: bytes, one: bytes, between: bytes, count: int) -> bytes:
    """One request, repeated within the size limit, with empty lines before and between the
    copies.
    """
    count = min(count, max(1, LARGE // (len(one) + len(between) + 1)))
    return before + (one + between) * (count - 1) + one


CLIENT = st.builds(
    Client,
    st.one_of(
        requests(),
        requests(),
        requests(),
        st.builds(_pipelined, often(b"", _BLANKS), requests(), st.just(b""), st.just(2)),
        st.builds(_pipelined, st.just(b""), requests(), often(b"", _BLANKS), st.just(50)),
        st.builds(_pipelined, _BLANKS, requests(), _BLANKS, st.sampled_from([1, 2, 50])),
        st.builds(lambda one, cut: one[: len(one) * cut // 16], requests(), st.integers(0, 16)),
        st.one_of(repeated(UNITS), NOISE),
    ),
    SIZES,
    st.sampled_from(["reads", "reads", "reads little", "stops", "half-closes", "resets", "closes"]),
)
