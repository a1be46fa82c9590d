"""RequestReader: reads one unambiguous request, or gives a reason, for all cuts.

Every case runs whole, byte by byte and cut in two at every position, alone and with a second
request directly after it; all of them must give the same result.
"""

import gzip
from typing import Any

import pytest

from router.config.model import Limits
from router.core.errors import Reason, RouterError
from router.wire.http1.body_decoder import decoder_of
from router.wire.http1.heads import BodyReading, RequestHead
from router.wire.http1.request_reader import COMPLETE, RequestReader
from tests.harness.splits import name_of, ways
from tests.wire.http1.heads import feed, told

LIMITS = Limits()
NEXT = b"GET /next HTTP/1.1\r\nHost: b\r\n\r\n"
Story = list[Any]


def read(pieces: list[bytes], limits: Limits = LIMITS, via: bytes = b"hedgerow") -> Story:
    """The requests in `pieces`, as a connection would read them, and how it ends."""
    heads: list[RequestHead] = []
    reader = RequestReader(limits, via)
    story: Story = []
    try:
        for piece in pieces:
            data = piece
            while data:
                feed(reader, data, heads.append)
                if reader.state != COMPLETE:
                    break
                assert heads[-1] is reader.head
                body = b"".join(reader.take_body())
                assert len(body) == reader.body_bytes
                story.append((told(reader.head), body))
                data, reader.early = reader.early, b""
                reader.reset()
    except RouterError as err:
        story.append(err.reason)
    else:
        story.append(reader.started)
    reader.close()
    return story


def read_all_ways(data: bytes, limits: Limits = LIMITS) -> Story:
    """The result for `data`, equal for all cuts."""
    expected = read([data], limits)
    for pieces in ways(data):
        assert read(pieces, limits) == expected, name_of(pieces)
    return expected


def one(data: bytes, limits: Limits = LIMITS) -> tuple[RequestHead, bytes]:
    """The only request of `data`; the same with another directly after it."""
    story = read_all_ways(data, limits)
    assert len(story) == 2, story
    assert story[-1] is False
    behind = read_all_ways(data + NEXT, limits)
    assert [behind[0], behind[2]] == [story[0], False], behind
    assert behind[1][0].target == b"/next"
    head: RequestHead = story[0][0]
    body: bytes = story[0][1]
    return head, body


def refused(data: bytes, limits: Limits = LIMITS) -> Reason:
    story = read_all_ways(data, limits)
    assert isinstance(story[-1], Reason), story
    return story[-1]


def get(*fields: bytes, target: bytes = b"/a", version: bytes = b"1.1") -> bytes:
    lines = [b"GET %b HTTP/%b" % (target, version), b"Host: h", *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def post(body: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join([b"POST /p HTTP/1.1", b"Host: h", *fields]) + b"\r\n\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (get(), b""),
        (b"\r\n\r\n" + get(), b""),
        (post(b"", b"Content-Length: 0"), b""),
        (post(b"hello", b"Content-Length: 5"), b"hello"),
        (post(b"\r\n\r\n\r\n", b"Content-Length: 6"), b"\r\n\r\n\r\n"),
        (post(b"0\r\n\r\n", CHUNKED), b""),
        (post(b"5\r\nhello\r\n0\r\n\r\n", CHUNKED), b"hello"),
        (post(b"1\r\nh\r\n1\r\ni\r\n1\r\n!\r\n0\r\n\r\n", CHUNKED), b"hi!"),
        (post(b"4\r\n\r\n\r\n\r\n4\r\n\n\r\n\r\r\n0\r\n\r\n", CHUNKED), b"\r\n\r\n\n\r\n\r"),
        (post(b'2;a=b;c="d e"\r\nhi\r\n0;last\r\n\r\n', CHUNKED), b"hi"),
        (post(b"2\r\nhi\r\n0\r\nHost: evil\r\nVia: 1.1 x\r\n\r\n", CHUNKED), b"hi"),
        (post(b"A\r\n0123456789\r\n0\r\n\r\n", CHUNKED), b"0123456789"),
        (post(b"009\r\n0\r\n\r\n0\r\n\r\r\n000;x\r\n\r\n", CHUNKED), b"0\r\n\r\n0\r\n\r"),
        (post(b'1;a="0";b\r\nx\r\n0;c="d"\r\nX: 0\r\n\r\n', CHUNKED), b"x"),
    ],
)
def test_a_request_is_the_same_however_it_arrives(data: bytes, body: bytes) -> None:
    head, got = one(data)
    assert got == body
    assert head.target in (b"/a", b"/p")


@pytest.mark.parametrize(
    "size",
    [
        b"",
        b"-1",
        b"-5",
        b"+1",
        b"0x1",
        b"1_0",
        b" 1",
        b"1 ",
        b"g",
        b";a",
        b"1\r",
        b"f" * 17,
        b"0" * 40,
    ],
)
def test_sizes_of_chunks_that_are_refused(size: bytes) -> None:
    data = post(size + b"\r\nx\r\n\r\n0\r\n\r\n", CHUNKED)
    assert refused(data) is Reason.BAD_REQUEST


class CountingParser:
    def __init__(self, parser: Any) -> None:
        self.parser = parser
        self.calls = 0

    def feed_data(self, data: bytes) -> None:
        self.calls += 1
        self.parser.feed_data(data)


@pytest.mark.parametrize("sizes", [[], [65_536], [8], [1, 65_536]])
def test_line_ends_in_the_data_of_a_chunk_cost_nothing(sizes: list[int]) -> None:
    """CRLFs in chunk data do not end a body, so the parser gets whole reads.

    `sizes`: the sizes of the first reads in bytes.
    """
    reader = RequestReader(LIMITS, b"v")
    feed(reader, post(b"", CHUNKED))
    assert reader._chunked is not None
    parser = reader._chunked._parser = CountingParser(reader._chunked._parser)
    value = b"\r\n\r\n" * 50_000
    data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(value), value) + NEXT
    for size in sizes:
        feed(reader, data[:size])
        data = data[size:]
    feed(reader, data)
    assert reader.state == COMPLETE
    assert reader.early == NEXT
    assert b"".join(reader.take_body()) == value
    assert parser.calls <= len(sizes) + 2


class Watch:
    """Records the pieces of a body."""

    def __init__(self) -> None:
        self.fed: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self.fed.append(data)


def test_the_scan_of_a_decoded_body_goes_with_it() -> None:
    """Without it, the whole body would be scanned again in one turn of the event loop."""
    body = gzip.compress(b'{"model":"m"}')
    reader, watch = RequestReader(LIMITS, b"v"), Watch()
    data = reader.feed(post(body, b"Content-Length: %d" % len(body)))
    decoder = decoder_of(b"gzip", is_json=True, is_known=True)
    reader.head.reading = BodyReading(is_json=True, decoder=decoder, watch=watch)
    reader.begin_body()
    reader.feed(data)
    assert reader.state == COMPLETE
    assert b"".join(reader.take_body()) == b"".join(watch.fed) == b'{"model":"m"}'
    assert (reader.head.reading.decoder, reader.head.reading.watch) == (None, watch)


def test_trailers_never_become_fields() -> None:
    head, _ = one(post(b"0\r\nAuthorization: Bearer x\r\nX-A: b\r\n\r\n", CHUNKED))
    assert head.authorization is None
    assert head.lines == []


def test_an_unfinished_request_is_only_started() -> None:
    assert read([b""]) == [False]
    assert read([b"GE"]) == [True]
    assert read([post(b"hel", b"Content-Length: 5")]) == [True]
    assert read([post(b"5\r\nhello\r\n0\r\n", CHUNKED)]) == [True]


# -- limits, exactly at and one over ------------------------------------------------------------

SMALL = Limits(request_line=200, head=600, header_count=4, body=64, early_data=32)


@pytest.mark.parametrize("lead", [b"", b"\r\n"], ids=["", "after an empty line"])
@pytest.mark.parametrize("over", [0, 1])
def test_the_request_line(over: int, lead: bytes) -> None:
    line = b"GET /%b HTTP/1.1" % (b"l" * (SMALL.request_line - 14 + over))
    assert len(line) == SMALL.request_line + over
    data = lead + line + b"\r\nHost: h\r\n\r\n"
    if over:
        assert refused(data, SMALL) is Reason.TARGET_TOO_LONG
    else:
        one(data, SMALL)


@pytest.mark.parametrize("over", [0, 1])
def test_empty_lines_before_a_request(over: int) -> None:
    data = b"\r\n" * (8 + over) + get()
    if over:
        assert refused(data) is Reason.BAD_REQUEST
    else:
        one(data)
    behind = read_all_ways(get() + data)
    assert behind[1] is Reason.BAD_REQUEST if over else behind[2] is False


@pytest.mark.parametrize("lead", [b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n\r", b"\r\n\n"])
def test_line_ends_that_are_no_empty_line(lead: bytes) -> None:
    for pieces in ways(lead + get()):
        assert isinstance(read(pieces)[-1], Reason), name_of(pieces)


@pytest.mark.parametrize("over", [0, 1])
def test_the_whole_head(over: int) -> None:
    bare = get(b"X-Pad: ")
    data = get(b"X-Pad: " + b"p" * (SMALL.head - len(bare) + over))
    assert len(data) == SMALL.head + over
    if over:
        assert refused(data, SMALL) is Reason.HEAD_TOO_LARGE
    else:
        one(data, SMALL)


@pytest.mark.parametrize("over", [0, 1])
def test_the_number_of_fields(over: int) -> None:
    data = get(*[b"X-%d: y" % n for n in range(SMALL.header_count - 1 + over)])
    if over:
        assert refused(data, SMALL) is Reason.HEAD_TOO_LARGE
    else:
        assert len(one(data, SMALL)[0].lines) == SMALL.header_count - 1


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("chunked", [False, True])
def test_the_body(over: int, chunked: bool) -> None:
    body = b"b" * (SMALL.body + over)
    if chunked:
        data = post(b"".join(b"1\r\nb\r\n" for _ in body) + b"0\r\n\r\n", CHUNKED)
    else:
        data = post(body, b"Content-Length: %d" % len(body))
    if over:
        assert refused(data, SMALL) is Reason.BODY_TOO_LARGE
    else:
        assert one(data, SMALL)[1] == body


def test_too_large_a_length_is_refused_before_its_body() -> None:
    assert read([post(b"", b"Content-Length: 10000000000")]) == [Reason.BODY_TOO_LARGE]


def test_an_endless_head_is_refused_while_it_comes() -> None:
    reader = RequestReader(SMALL, b"v")
    feed(reader, b"GET / HTTP/1.1\r\nX-Pad: ")
    with pytest.raises(RouterError) as refusal:
        for _ in range(SMALL.head):
            feed(reader, b"p")
    assert refusal.value.reason is Reason.HEAD_TOO_LARGE
    reader = RequestReader(SMALL, b"v")
    feed(reader, b"GET /")
    with pytest.raises(RouterError) as refusal:
        for _ in range(SMALL.request_line):
            feed(reader, b"a")
    assert refusal.value.reason is Reason.TARGET_TOO_LONG


@pytest.mark.parametrize("over", [0, 1])
def test_early_data(over: int) -> None:
    reader = RequestReader(SMALL, b"v")
    early = b"e" * (SMALL.early_data + over)
    for pieces in ([get() + early], [get(), early], [get() + early[:5], early[5:]]):
        reader.reset()
        reader.early = b""
        if over:
            with pytest.raises(RouterError) as refusal:
                for piece in pieces:
                    feed(reader, piece)
            assert refusal.value.reason is Reason.EARLY_DATA
        else:
            for piece in pieces:
                feed(reader, piece)
            assert reader.early == early
            assert reader.state == COMPLETE


def test_chunk_extensions_are_capped() -> None:
    assert refused_whole_and_in_pieces(b"1;" + b"e" * 20_000 + b"\r\nx\r\n0\r\n\r\n")


def test_trailers_are_capped() -> None:
    flood = b"0\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"t" * 80) for n in range(400))
    assert refused_whole_and_in_pieces(flood + b"\r\n")


def test_many_small_extensions_are_capped() -> None:
    assert refused_whole_and_in_pieces(b"1;extension-of-a-byte=1\r\nx\r\n" * 4000 + b"0\r\n\r\n")


def refused_whole_and_in_pieces(body: bytes) -> bool:
    data = post(body, CHUNKED)
    stories = [
        read([data]),
        read([data[at : at + 1] for at in range(len(data))]),
        read([data[at : at + 1000] for at in range(0, len(data), 1000)]),
    ]
    return all(story == [Reason.BAD_REQUEST] for story in stories)


def test_a_body_of_one_byte_chunks_is_taken() -> None:
    body = b"x" * 5000
    data = post(b"".join(b"1\r\nx\r\n" for _ in body) + b"0\r\n\r\n", CHUNKED)
    assert read([data])[0][1] == body
    assert read([data[at : at + 1] for at in range(len(data))])[0][1] == body
