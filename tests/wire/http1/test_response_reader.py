"""ResponseReader: exactly one response, for all cuts of its bytes."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.config.model import Limits
from router.wire.http1.response_reader import COMPLETE, BadResponse, ResponseReader
from tests.examples import examples
from tests.harness.splits import name_of, ways
from tests.wire.http1.heads import told

LIMITS = Limits()
BAD = "bad"
CHUNKED = b"Transfer-Encoding: chunked"


def read(
    pieces: list[bytes], *, for_head: bool = False, limits: Limits = LIMITS, eof: bool = False
) -> Any:
    """The reader's result for a response, or BAD."""
    reader = ResponseReader(limits, for_head)
    try:
        for piece in pieces:
            reader.feed(piece)
    except BadResponse:
        return BAD
    whole = reader.eof() if eof else reader.state == COMPLETE
    interim = [(head.status, head.lines) for head in reader.interim or ()]
    return told(reader.head), interim, b"".join(reader.parts), whole, reader.surplus


def read_all_ways(data: bytes, **options: Any) -> Any:
    """The result, equal for all cuts."""
    expected = read([data], **options)
    for pieces in ways(data):
        assert read(pieces, **options) == expected, name_of(pieces)
    return expected


def ok(*fields: bytes, status: bytes = b"200 OK", body: bytes = b"") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *fields]) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("data", "body", "keeps"),
    [
        (ok(b"Content-Length: 0"), b"", True),
        (ok(b"Content-Length: 5", body=b"hello"), b"hello", True),
        (ok(b"Content-Length: 005", body=b"hello"), b"hello", True),
        (ok(b"Content-Length: 2", b"Connection: close", body=b"hi"), b"hi", False),
        (ok(CHUNKED, body=b"0\r\n\r\n"), b"", True),
        (ok(CHUNKED, body=b"2\r\nhi\r\n3;x=y\r\n yo\r\n0\r\n\r\n"), b"hi yo", True),
        (ok(CHUNKED, body=b"2\r\nhi\r\n0\r\nSet-Cookie: a\r\nX: b\r\n\r\n"), b"hi", True),
        (ok(status=b"204 No Content"), b"", True),
        (ok(b"Content-Length: 5", status=b"204 No Content"), b"", True),
        (ok(b"Content-Length: 5", status=b"304 Not Modified"), b"", True),
        (ok(CHUNKED, status=b"304 Not Modified"), b"", True),
        (ok(b"Content-Length: 0", status=b"404"), b"", True),
    ],
)
def test_a_whole_response(data: bytes, body: bytes, keeps: bool) -> None:
    head, interim, got, whole, surplus = read_all_ways(data)
    assert (got, interim, whole, surplus) == (body, [], True, False)
    assert head.keep_alive == keeps
    assert head.lines == []


@pytest.mark.parametrize(
    "data",
    [
        ok(b"Content-Length: 2", body=b"hi"),
        ok(CHUNKED, body=b"2\r\nhi\r\n0\r\n\r\n"),
        ok(b"Content-Length: 9", status=b"204 No Content"),
        ok(b"Content-Length: 9", status=b"304 Not Modified"),
    ],
)
@pytest.mark.parametrize("more", [ok(b"Content-Length: 1", body=b"x"), b"junk", b"\x00"])
def test_what_follows_is_surplus_and_not_parsed(data: bytes, more: bytes) -> None:
    alone = read([data])
    assert read_all_ways(data + more) == (*alone[:-1], True)


def test_http_1_0_keeps_a_connection_only_with_keep_alive() -> None:
    assert not read([b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"])[0].keep_alive
    told = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"
    assert read_all_ways(told)[0].keep_alive


@pytest.mark.parametrize("fields", [b"", b"Connection: keep-alive\r\n"])
def test_a_connection_with_chunks_in_http_1_0_is_not_used_again(fields: bytes) -> None:
    data = b"HTTP/1.0 200 OK\r\n" + fields + CHUNKED + b"\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    head, _, body, whole, surplus = read_all_ways(data)
    assert (body, whole, surplus, head.keep_alive) == (b"hi", True, False, False)


def test_without_framing_the_body_ends_with_the_connection() -> None:
    data = ok(b"Content-Type: text/plain", body=b"some\r\n\r\ntext")
    head, _, body, whole, _ = read_all_ways(data)
    assert (body, whole, head.keep_alive) == (b"some\r\n\r\ntext", False, False)
    assert read_all_ways(data, eof=True)[3]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        ok(b"Content-Length: 5", body=b"hell"),
        ok(CHUNKED, body=b"5\r\nhello\r\n0\r\n"),
        ok(CHUNKED, body=b"5\r\nhe"),
        ok(CHUNKED),
        ok(status=b"100 Continue"),
    ],
)
def test_an_early_end_is_no_end(data: bytes) -> None:
    result = read([data], eof=True)
    assert result[3] is False


@pytest.mark.parametrize(
    "data", [ok(b"Content-Length: 5"), ok(CHUNKED), ok(), ok(status=b"204 No Content")]
)
def test_an_answer_to_head_has_no_body(data: bytes) -> None:
    _, _, body, whole, surplus = read_all_ways(data, for_head=True)
    assert (body, whole, surplus) == (b"", True, False)
    _, _, body, whole, surplus = read_all_ways(data + b"hello", for_head=True)
    assert (body, whole, surplus) == (b"", True, True)


def test_the_content_length_of_a_head_response_is_kept() -> None:
    assert read([ok(b"Content-Length: 5")], for_head=True)[0].content_length == 5
    assert read([ok(b"Content-Length: 5", status=b"204 No")])[0].content_length is None


def test_interim_responses_do_not_end_it() -> None:
    data = (
        ok(status=b"100 Continue")
        + ok(b"Link: </a>; rel=preload", status=b"103 Early Hints")
        + ok(status=b"102 Processing")
        + ok(b"Content-Length: 2", body=b"hi")
    )
    head, interim, body, whole, surplus = read_all_ways(data)
    assert head.status == 200
    assert interim == [(100, []), (103, [b"Link: </a>; rel=preload"]), (102, [])]
    assert (body, whole, surplus) == (b"hi", True, False)


@pytest.mark.parametrize("status", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
def test_chunks_after_an_interim_response_are_not_lost(status: bytes) -> None:
    data = ok(status=status) + ok(CHUNKED, body=b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")
    _, _, body, whole, surplus = read_all_ways(data)
    assert (body, whole, surplus) == (b"hello!", True, False)


def test_interim_responses_are_capped_when_their_reader_takes_them_away() -> None:
    """The list is emptied after each read when they are relayed; the limit applies to all of
    them.
    """
    reader = ResponseReader(LIMITS)
    with pytest.raises(BadResponse):
        for _ in range(1000):
            reader.feed(ok(status=b"100 Continue"))
            reader.interim = None


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 99999 Huge\r\n\r\n",
        b"HTTP/1.1 0 None\r\n\r\n",
        b"HTTP/1.1 099 Low\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200\tOK\r\n\r\n",
        ok(status=b"101 Switching Protocols"),
        ok(b"Content-Length: 5", b"Content-Length: 5", body=b"hello"),
        ok(b"Content-Length: 5", b"Content-Length: 6", body=b"hello"),
        ok(b"Content-Length: 5, 5", body=b"hello"),
        ok(b"Content-Length: -5"),
        ok(b"Content-Length: 0x5"),
        ok(b"Content-Length: " + b"9" * 30),
        ok(b"Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"),
        ok(CHUNKED, b"Content-Length: 5", body=b"0\r\n\r\n"),
        ok(CHUNKED, CHUNKED, body=b"0\r\n\r\n"),
        ok(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
        ok(b"Transfer-Encoding: gzip"),
        ok(b"X: a\x00b", b"Content-Length: 0"),
        ok(b"X: a\rb", b"Content-Length: 0"),
        ok(b"X: a\nb: c", b"Content-Length: 0"),
        ok(b"X : a", b"Content-Length: 0"),
        ok(b"X: a", b" folded", b"Content-Length: 0"),
        ok(b"no colon", b"Content-Length: 0"),
        ok(b"Connection: close, Content-Length", b"Content-Length: 0"),
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    ],
)
def test_what_is_no_response(data: bytes) -> None:
    assert read_all_ways(data) == BAD


@pytest.mark.parametrize(
    "body",
    [
        b"x\r\n",
        b"-1\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"ffffffffffffffffff\r\n",
        b"2\r\nhiXX",
        b"2\nhi\n0\n\n",
    ],
)
def test_bad_chunks(body: bytes) -> None:
    assert read_all_ways(ok(CHUNKED, body=body)) == BAD


# -- limits -------------------------------------------------------------------------------------

SMALL = Limits(response_head=400, response_header_count=5)


@pytest.mark.parametrize("over", [0, 1])
def test_the_head(over: int) -> None:
    bare = ok(b"X-Pad: ", b"Content-Length: 0")
    pad = b"p" * (SMALL.response_head - len(bare) + over)
    data = ok(b"X-Pad: " + pad, b"Content-Length: 0")
    assert len(data) == SMALL.response_head + over
    assert (read_all_ways(data, limits=SMALL) == BAD) == bool(over)


@pytest.mark.parametrize("over", [0, 1])
def test_the_number_of_fields(over: int) -> None:
    fields = [b"X-%d: y" % n for n in range(SMALL.response_header_count - 1 + over)]
    data = ok(b"Content-Length: 0", *fields)
    assert (read_all_ways(data, limits=SMALL) == BAD) == bool(over)


def test_an_endless_head_is_refused_while_it_comes() -> None:
    reader = ResponseReader(SMALL)
    reader.feed(b"HTTP/1.1 200 OK\r\nX: ")
    with pytest.raises(BadResponse):
        for _ in range(SMALL.response_head):
            reader.feed(b"p")


@pytest.mark.parametrize(
    "flood",
    [
        b"1;" + b"e" * (4 * 1024 * 1024),
        b"0\r\n" + b"X: y\r\n" * 100_000,
        b"1;extension=of-a-single-byte-of-a-body\r\nx\r\n" * 4000,
    ],
    ids=["extension", "trailers", "small extensions"],
)
def test_chunk_overhead_is_capped(flood: bytes) -> None:
    data = ok(CHUNKED, body=flood)
    assert read([data[at : at + 4096] for at in range(0, len(data), 4096)]) == BAD


def test_one_byte_chunks_are_taken() -> None:
    data = ok(CHUNKED, body=b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
    for size in (1, 7, 65536):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        _, _, body, whole, surplus = read(pieces)
        assert (body, whole, surplus) == (b"x" * 20_000, True, False)


# -- fields -----------------------------------------------------------------------------------


def test_fields_of_the_connection_end_here() -> None:
    data = ok(
        b"X-Before: 1",
        b"Keep-Alive: timeout=5",
        b"Connection: X-Before, X-After",
        b"X-After: 2",
        b"Proxy-Authenticate: Basic",
        b"Trailer: X",
        b"Upgrade: h2c",
        b"X-Request-Id: theirs",
        b"X-Router-Replica: forged",
        b"Server: engine",
        b"Content-Length: 0",
    )
    head = read_all_ways(data)[0]
    assert head.lines == [b"Server: engine"]
    assert head.keep_alive


@pytest.mark.parametrize(
    ("value", "is_sse"),
    [
        (b"text/event-stream", True),
        (b"Text/Event-Stream; charset=utf-8", True),
        (b"text/plain", False),
        (b"application/json", False),
    ],
)
def test_server_sent_events_are_recognised(value: bytes, is_sse: bool) -> None:
    head = read([ok(b"Content-Type: " + value, b"Content-Length: 0")])[0]
    assert head.is_sse == is_sse
    own = [b"x-accel-buffering: no"] if is_sse else []
    assert head.lines == [b"Content-Type: " + value, *own]


def test_an_engine_decides_about_buffering() -> None:
    line = b"X-Accel-Buffering: yes"
    head = read([ok(b"Content-Type: text/event-stream", line, b"Content-Length: 0")])[0]
    assert head.lines == [b"Content-Type: text/event-stream", line]


def test_opaque_bytes_pass_in_values() -> None:
    line = b"X-Text: \xc3\xa9 \xff"
    assert read_all_ways(ok(line, b"Content-Length: 0"))[0].lines == [line]


# -- any chunking of any body ---------------------------------------------------------------------

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in pieces of these sizes, repeated."""
    pieces = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    return pieces


@examples(150)
@given(st.binary(max_size=600), SIZES, SIZES, st.binary(max_size=8))
def test_any_chunking_gives_the_same_bytes(
    body: bytes, chunks: list[int], reads: list[int], more: bytes
) -> None:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in cut(body, chunks)) + b"0\r\n\r\n"
    data = ok(CHUNKED, body=framed)
    _, _, got, whole, surplus = read(cut(data, reads))
    assert (got, whole, surplus) == (body, True, False)
    _, _, got, whole, _ = read(cut(data + more, reads))
    assert (got, whole) == (body, True)


@examples(100)
@given(st.binary(max_size=600), SIZES, st.binary(max_size=8))
def test_any_cutting_of_a_sized_body_gives_the_same_bytes(
    body: bytes, reads: list[int], more: bytes
) -> None:
    data = ok(b"Content-Length: %d" % len(body), body=body)
    _, _, got, whole, surplus = read(cut(data + more, reads))
    assert (got, whole, surplus) == (body, True, bool(more))


@examples(150)
@given(st.binary(max_size=300), SIZES)
def test_nothing_but_bad_response_is_raised(noise: bytes, reads: list[int]) -> None:
    read(cut(noise, reads))
    read(cut(b"HTTP/1.1 200 OK\r\n" + noise + b"\r\n\r\n", reads))
    read(cut(ok(CHUNKED, body=noise), reads))
