"""Requests with more than one reading: refused with 400, 413, 431, 501 or 505 and a close.

The smuggled request behind each of them gets no answer, and no byte reaches a replica. Bytes with
one reading are forwarded in canonical form.
"""

import pytest

from tests.harness.behaviours import echo
from tests.harness.cases import Refusal, check_refusals
from tests.harness.messages import request
from tests.harness.running import Router, long_scenario, routed, scenario

PATHS = ("/v1/chat/completions", "/upload")
LINE = b"GET /plain HTTP/1.1\r\n"
HOST = b"Host: a\r\n"
CHUNKS = {
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "minus": b"-1\r\nhello\r\n0\r\n\r\n",
    "plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "underscore": b"5_0\r\nhello\r\n0\r\n\r\n",
    "leading space": b" 5\r\nhello\r\n0\r\n\r\n",
    "trailing space": b"5 \r\nhello\r\n0\r\n\r\n",
    "no crlf after data": b"5\r\nhello0\r\n\r\n",
    "bare lf after size": b"5\nhello\r\n0\r\n\r\n",
    "bare lf after data": b"5\r\nhello\n0\r\n\r\n",
    "bare lf at the end": b"5\r\nhello\r\n0\n\n",
    "bare cr after size": b"5\rhello\r\n0\r\n\r\n",
    "spill": b"5\r\nhelloworld\r\n0\r\n\r\n",
    "short": b"6\r\nhello\r\n0\r\n\r\n",
    "words": b"xyz\r\nhello\r\n0\r\n\r\n",
    "empty size": b"\r\nhello\r\n0\r\n\r\n",
    "2^64": b"10000000000000000\r\nhello\r\n0\r\n\r\n",
    "2^64+5": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "extension with cr": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "extension with lf": b"5;a\nhello\r\n0\r\n\r\n",
    "extension of 64 KiB": b"5;" + b"a" * 65536 + b"\r\nhello\r\n0\r\n\r\n",
    "extensions without end": b"".join(b"1;%b\r\nx\r\n" % (b"a" * 1000) for _ in range(100)),
    "trailer without colon": b"0\r\nX\r\n\r\n",
    "trailers without end": b"0\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(20_000)),
    "after good chunks": b"5\r\nhello\r\n" * 100 + b"zz\r\n",
}
LENGTHS = {
    "both": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "both, other order": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "twice, different": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "twice, equal": b"Content-Length: 5\r\nContent-Length: 5\r\n",
    "list": b"Content-Length: 5, 5\r\n",
    "plus": b"Content-Length: +5\r\n",
    "minus": b"Content-Length: -5\r\n",
    "hex": b"Content-Length: 0x5\r\n",
    "underscore": b"Content-Length: 5_0\r\n",
    "space": b"Content-Length: 5 5\r\n",
    "empty": b"Content-Length: \r\n",
    "arabic digit": "Content-Length: ٥\r\n".encode(),
    "fraction": b"Content-Length: 5.0\r\n",
    "quoted": b'Content-Length: "5"\r\n',
    "2^64": b"Content-Length: 18446744073709551616\r\n",
    "2^64+5": b"Content-Length: 18446744073709551621\r\n",
    "space before colon": b"Content-Length : 5\r\n",
    "unknown coding": b"Transfer-Encoding: xchunked\r\n",
    "identity": b"Transfer-Encoding: identity\r\n",
    "coding after chunked": b"Transfer-Encoding: chunked, identity\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n",
    "chunked in two fields": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "gzip then chunked": b"Transfer-Encoding: gzip, chunked\r\n",
    "empty coding": b"Transfer-Encoding: \r\n",
    "quoted coding": b'Transfer-Encoding: "chunked"\r\n',
    "tab in the name": b"Transfer\tEncoding: chunked\r\n",
    "vertical tab": b"Transfer-Encoding: \x0bchunked\r\n",
    "parameter": b"Transfer-Encoding: chunked;a=b\r\n",
}
LINES = {
    "obs-fold": LINE + HOST + b"X: a\r\n b\r\n\r\n",
    "obs-fold with tab": LINE + HOST + b"X: a\r\n\tb\r\n\r\n",
    "bare cr in value": LINE + HOST + b"X: a\rb\r\n\r\n",
    "bare lf ends a field": LINE + HOST + b"X: a\nY: b\r\n\r\n",
    "bare lf ends the line": b"GET /plain HTTP/1.1\nHost: a\r\n\r\n",
    "bare lf ends the head": LINE + HOST + b"\n",
    "nul in value": LINE + HOST + b"X: a\x00b\r\n\r\n",
    "nul in name": LINE + HOST + b"X\x00: a\r\n\r\n",
    "control in value": LINE + HOST + b"X: a\x01b\r\n\r\n",
    "delete in value": LINE + HOST + b"X: a\x7fb\r\n\r\n",
    "space before colon": LINE + HOST + b"X : a\r\n\r\n",
    "space in name": LINE + HOST + b"X Y: a\r\n\r\n",
    "no colon": LINE + HOST + b"X\r\n\r\n",
    "empty name": LINE + HOST + b": a\r\n\r\n",
    "leading space": LINE + b" " + HOST + b"\r\n",
    "leading tab": LINE + b"\t" + HOST + b"\r\n",
    "high byte in name": LINE + HOST + b"X\xff: a\r\n\r\n",
    "colon of another alphabet": LINE + HOST + "X：a\r\n\r\n".encode(),
    "two spaces": b"GET  /plain HTTP/1.1\r\nHost: a\r\n\r\n",
    "tab": b"GET\t/plain HTTP/1.1\r\nHost: a\r\n\r\n",
    "space in target": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "trailing space": b"GET /plain HTTP/1.1 \r\nHost: a\r\n\r\n",
    "leading space in line": b" GET /plain HTTP/1.1\r\nHost: a\r\n\r\n",
    "no version": b"GET /plain\r\nHost: a\r\n\r\n",
    "lower-case version": b"GET /plain http/1.1\r\nHost: a\r\n\r\n",
    "version 1.2": b"GET /plain HTTP/1.2\r\nHost: a\r\n\r\n",
    "version 2.0": b"GET /plain HTTP/2.0\r\nHost: a\r\n\r\n",
    "version 0.9": b"GET /plain HTTP/0.9\r\nHost: a\r\n\r\n",
    "version 1.10": b"GET /plain HTTP/1.10\r\nHost: a\r\n\r\n",
}
CODED_1_0 = b"POST /upload HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


def post(path: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: a\r\n".encode()


@pytest.mark.parametrize("path", PATHS)
@long_scenario
async def test_chunks(path: str) -> None:
    start = post(path) + b"Transfer-Encoding: chunked\r\n\r\n"
    await check_refusals(
        {name: Refusal(sent=(start, data), status=(400, 413, 431)) for name, data in CHUNKS.items()}
    )


@pytest.mark.parametrize("path", PATHS)
@scenario
async def test_lengths_and_codings(path: str) -> None:
    await check_refusals(
        {
            name: Refusal(sent=post(path) + fields + b"\r\n0\r\n\r\n", status=(400, 413, 501))
            for name, fields in LENGTHS.items()
        }
    )


@scenario
async def test_line_ends_names_and_versions() -> None:
    rows = {name: Refusal(sent=data, status=(400, 501, 505)) for name, data in LINES.items()}
    await check_refusals(rows | {"chunked in HTTP/1.0": Refusal(sent=CODED_1_0)})


@routed(echo)
async def test_valid_chunks_are_forwarded_with_new_framing(router: Router) -> None:
    asked = request("/upload", "Transfer-Encoding: Chunked", method="POST")
    asked += b"5;a=b\r\nhello\r\n006\r\n world\r\n000\r\n\r\n"
    assert (await router.ask(asked)).json()["body"] == "hello world"
    assert b"a=b" not in router.replica.sessions[0].received


@pytest.mark.parametrize("spelling", ["005", "5 ", "  5"])
@routed(echo)
async def test_a_length_is_forwarded_in_canonical_form(router: Router, spelling: str) -> None:
    asked = request("/upload", f"Content-Length: {spelling}", method="POST") + b"hello"
    assert (await router.ask(asked)).json()["body"] == "hello"
    assert router.replica.requests[0].header("content-length") == "5"
    received = bytes(router.replica.sessions[0].received).lower()
    assert received.count(b"content-length:") == 1
    assert b"content-length: 5\r\n" in received


@routed(echo)
async def test_what_a_value_may_hold_is_forwarded_as_it_is(router: Router) -> None:
    for value in (b"caf\xc3\xa9", b"\xff\xfe", b"a\tb"):
        assert (await router.ask(LINE + HOST + b"X: " + value + b"\r\n\r\n")).status == 200
        assert b": " + value + b"\r\n" in router.replica.sessions[0].received
