"""Answers that are invalid, ambiguous, too large or cut: what the client gets, row by row.

An invalid answer becomes a 502. Its bytes never reach the client, and its connection is closed. An
answer that is cut after its first relayed byte is visibly truncated.
"""

import pytest

from tests.harness import kit

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nxyz"
# Each row is asked for as a completion, as a stream and on another path.
GARBAGE = {
    "words": b"what is this\r\n\r\n",
    "tls alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "tls hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http2 settings": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80",
    "http2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "five digits": b"HTTP/1.1 99999 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 0": b"HTTP/1.1 0 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 000": b"HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 099": b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 600": b"HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n",
    "negative": b"HTTP/1.1 -200 OK\r\nContent-Length: 0\r\n\r\n",
    "version 2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "version 9": b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "rtsp": b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "icy": b"ICY 200 OK\r\nContent-Length: 0\r\n\r\n",
    "nul": b"\x00" * 64,
}
FRAMING = {
    "both": b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "a list of lengths": b"Content-Length: 3, 4\r\n\r\nabc",
    "signed": b"Content-Length: +3\r\n\r\nabc",
    "hex": b"Content-Length: 0x3\r\n\r\nabc",
    "huge": b"Content-Length: 99999999999999999999\r\n\r\nabc",
    "empty": b"Content-Length: \r\n\r\nabc",
    "negative": b"Content-Length: -1\r\n\r\nabc",
    "unknown coding": b"Transfer-Encoding: pigeons\r\n\r\nabc",
    "coding not last": b"Transfer-Encoding: chunked, gzip\r\n\r\nabc",
    "coding we cannot undo": b"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
}
LARGE = {
    "fields": b"".join(b"x-%d: y\r\n" % index for index in range(10_000)),
    "few bytes in too many fields": b"a:b\r\n" * 201,
    "value": b"x: " + b"y" * 1_000_000,
    "name": b"x" * 1_000_000,
}
INJECTED = {
    "nul": b"x-evil: a\x00b",
    "bare cr": b"x-evil: a\rset-cookie: b",
    "bare lf": b"x-evil: a\nset-cookie: b",
    "fold": b"x-evil: a\r\n b",
    "vertical tab": b"x-evil: a\x0bb",
    "escape": b"x-evil: a\x1b[31m",
    "delete": b"x-evil: a\x7fb",
    "space before colon": b"x-evil : a",
    "no colon": b"x-evil",
    "empty name": b": a",
    "name with nul": b"x\x00evil: a",
}
CHUNKS = {
    "words": b"zz\r\nabc\r\n0\r\n\r\n",
    "2^64": b"10000000000000000\r\nabc",
    "negative": b"-1\r\nabc\r\n0\r\n\r\n",
    "0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "no end": b"3\r\nabcdef\r\n0\r\n\r\n",
    "bare lf": b"3\nabc\n0\n\n",
    "extension without end": b"3;" + b"a" * (4 * 1024 * 1024),
}


def endless(*data: bytes) -> kit.Behaviour:
    """Answer with data of which the router need not read everything, and wait for its close."""

    async def behave(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(*data)
        await kit.until_closed(connection)

    return behave


INVALID: dict[str, kit.Behaviour] = (
    {name: kit.answer_then_fin(data) for name, data in GARBAGE.items()}
    | {f"framing: {name}": kit.answer(OK + data) for name, data in FRAMING.items()}
    | {f"large: {name}": endless(OK, data, b"\r\n\r\n") for name, data in LARGE.items()}
    | {
        f"field: {name}": kit.answer_then_fin(OK + b"Content-Length: 2\r\n" + line + b"\r\n\r\nok")
        for name, line in INJECTED.items()
    }
    | {
        "endless phrase": endless(b"HTTP/1.1 200 ", b"O" * 1_000_000),
        "101 unasked": kit.answer(SWITCH),
        "a thousand provisional": kit.answer_then_fin(
            b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + kit.completion()
        ),
    }
)
ASKS = {"whole": kit.chat(), "stream": kit.chat(stream=True), "other path": kit.request("/plain")}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        (n, a)
        for n in INVALID
        for a in ASKS
        if a == "other path" or (a == "stream") == (n in GARBAGE)
    ],
)
@kit.scenario
async def test_an_invalid_answer(name: str, asked: str) -> None:
    row = kit.Case(
        replicas=(INVALID[name],),
        asked=ASKS[asked],
        status=502,
        code="bad_response",
        without=(b"evil", b"set-cookie", b"xyz"),
        informational=(),
        reason="bad_response",
        closes=True,
    )
    await row.check(f"{name}, {asked}")


def streams(*events: bytes) -> kit.Behaviour:
    return kit.answer(kit.SSE_HEAD, *(kit.chunk(item) for item in events), kit.LAST_CHUNK)


ERROR = kit.event(
    {"error": {"message": "boom", "type": "InternalServerError", "param": None, "code": 500}}
)
ONCE = {"retry": {"attempts": 1}}
STREAM = kit.chat(stream=True)
PLAIN = kit.request("/plain")
CUT_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{"
POISON = kit.json_response({"poison": True})
SURPLUS = {"byte": b"x", "line": b"\r\n", "response": POISON}
TRAILERS = b"Content-Length: 1\r\nSet-Cookie: evil=1\r\nX-T: 1\r\n\r\n"
PROVISIONAL = b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + b"HTTP/1.1 102 Processing\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
EMPTY = {"nothing": (), "a comment": (b": ping\n\n",)}

TABLE = {
    # An answer that ends too early.
    **{
        f"plain cut: {name}": kit.Case(
            replicas=(kit.answer_then_fin(data),),
            asked=PLAIN,
            complete=False,
            body=b"abcab" if name == "chunk cut" else b"abc",
            reason="replica_reset",
        )
        for name, data in {
            "length": b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
            "chunk missing": kit.CHUNKED_HEAD + b"3\r\nabc\r\n",
            "chunk cut": kit.CHUNKED_HEAD + b"3\r\nabc\r\n5\r\nab",
        }.items()
    },
    **{
        f"head cut after {len(data)} bytes": kit.Case(
            replicas=(kit.answer_then_fin(data),),
            asked=PLAIN,
            settings=ONCE,
            status=502,
            code="replica_reset",
            reason="replica_reset",
        )
        for data in (b"", OK, OK + b"x: y\r\n")
    },
    "completion cut": kit.Case(
        replicas=(kit.answer_then_fin(CUT_JSON),), status=502, reason="replica_reset"
    ),
    "only provisional": kit.Case(
        replicas=(kit.answer_then_fin(b"HTTP/1.1 199 Wait\r\n\r\n"),),
        settings=ONCE,
        status=502,
        code=("bad_response", "replica_reset"),
        reason=("bad_response", "replica_reset"),
    ),
    # A body whose framing breaks: the head may have been relayed.
    **{
        f"chunks: {name}, {asked}": kit.Case(
            replicas=(kit.answer(CHUNKED + data),),
            asked=ASKS[asked],
            status=(200, 502),
            complete=None,
            reason="bad_response",
            closes=True,
        )
        for name, data in CHUNKS.items()
        for asked in ("whole", "other path")
    },
    "trailers without end": kit.Case(
        replicas=(
            kit.answer(
                CHUNKED + b"3\r\nabc\r\n0\r\n",
                *(b"x-%d: %b\r\n" % (index, b"y" * 100) for index in range(20_000)),
            ),
        ),
        asked=PLAIN,
        status=(200, 502),
        complete=None,
        reason="bad_response",
    ),
    # A stream that is empty, or has an error inside.
    **{
        f"empty stream, {name}": kit.Case(
            replicas=(streams(*events),),
            asked=STREAM,
            status=502,
            code="empty_stream",
            reason="empty_stream",
        )
        for name, events in EMPTY.items()
    },
    **{
        f"empty stream, {name}, another replica": kit.Case(
            first=(streams(*events),),
            replicas=(kit.sse_tokens(1), kit.sse_tokens(1)),
            asked=STREAM,
            events=3,
            attempts=2,
        )
        for name, events in EMPTY.items()
    },
    "a role and an end": kit.Case(
        replicas=(streams(kit.role(), kit.DONE),),
        asked=STREAM,
        status=(200, 502),
        reason="empty_stream",
    ),
    "error after content": kit.Case(
        replicas=(streams(kit.role(), kit.token("a"), ERROR, kit.DONE),),
        asked=STREAM,
        body=kit.role() + kit.token("a") + ERROR + kit.DONE,
        reason="stream_error",
    ),
    "error before content": kit.Case(
        first=(streams(kit.role(), ERROR, kit.DONE),),
        replicas=(kit.sse_tokens(1), kit.sse_tokens(1)),
        asked=STREAM,
        events=3,
        without=(b"boom",),
        attempts=2,
    ),
    "error before content, everywhere": kit.Case(
        replicas=(streams(kit.role(), ERROR, kit.DONE),),
        asked=STREAM,
        status=(200, 502),
        complete=None,
        reason="stream_error",
    ),
    # Bytes that belong to no answer.
    **{
        f"surplus {name} after {kind}": kit.Case(
            replicas=(kit.answer(whole + surplus),),
            asked=kit.chat(stream=kind == "chunks"),
            times=2,
            without=(b"poison",),
            sessions=2,
        )
        for name, surplus in SURPLUS.items()
        for kind, whole in {
            "a length": kit.completion(),
            "chunks": kit.SSE_HEAD + kit.chunk(kit.token("a")) + kit.LAST_CHUNK,
        }.items()
    },
    **{
        f"{name}, {asked}": kit.Case(
            replicas=(kit.answer(data),),
            asked=ASKS[asked],
            times=2,
            body=body,
            without=(b"evil",),
            informational=(),
        )
        for asked in ("whole", "other path")
        for name, data, body in (
            ("trailers", kit.CHUNKED_HEAD + b"3\r\nabc\r\n0\r\n" + TRAILERS, b"abc"),
            ("provisional answers", PROVISIONAL + kit.completion(), None),
        )
    },
    "early hints": kit.Case(
        replicas=(kit.answer(HINTS + kit.completion()),), asked=PLAIN, informational=(103,)
    ),
    "early hints for HTTP/1.0": kit.Case(
        replicas=(kit.answer(HINTS + kit.completion()),),
        asked=kit.request("/plain", version="1.0"),
        without=(b"103 ",),
        informational=(),
    ),
    "endless provisional answers": kit.Case(
        replicas=(kit.answer_then_fin(b"HTTP/1.1 100 Continue\r\n\r\n" * 200_000),),
        settings={"timeouts": {"first_token_s": 0.5}},
        status=(502, 504),
        informational=(),
        reason=None,
    ),
}


@pytest.mark.parametrize("name", TABLE)
@kit.scenario
async def test_what_the_client_gets(name: str) -> None:
    await TABLE[name].check(name)
