"""The request line, Host and every field that is read, dropped or refused."""

import pytest

from router.core.errors import Reason, RouterError
from router.wire.http1.heads import RequestHead
from router.wire.http1.request_reader import RequestReader
from tests.harness.splits import name_of, ways
from tests.wire.http1.heads import feed
from tests.wire.http1.test_request_reader import (
    CHUNKED,
    LIMITS,
    get,
    one,
    post,
    read,
    read_all_ways,
    refused,
)

# -- the request line and Host -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        (b"/", b"/"),
        (b"/a?b=c&d", b"/a?b=c&d"),
        (b"/%41", b"/%41"),
        (b"http://else.test/x?y", b"/x?y"),
        (b"https://else.test:8443/x", b"/x"),
        (b"http://else.test", b"/"),
        (b"http://else.test?q", b"/?q"),
    ],
)
def test_targets_become_origin_form(target: bytes, kept: bytes) -> None:
    assert one(get(target=target))[0].target == kept


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"GET * HTTP/1.1", Reason.BAD_TARGET),
        (b"GET * HTTP/1.1", Reason.BAD_TARGET),
        (b"GET /a#b HTTP/1.1", Reason.BAD_TARGET),
        (b"GET http://u@h/ HTTP/1.1", Reason.BAD_TARGET),
        (b"GET ftp://h/ HTTP/1.1", Reason.BAD_TARGET),
        (b"CONNECT h:443 HTTP/1.1", Reason.METHOD_NOT_ALLOWED),
        (b"TRACE / HTTP/1.1", Reason.METHOD_NOT_ALLOWED),
        (b"PROPFIND / HTTP/1.1", Reason.METHOD_UNKNOWN),
        (b"GET  / HTTP/1.1", Reason.BAD_REQUEST),
        (b"GET / HTTP/2.0", Reason.VERSION_NOT_SUPPORTED),
        (b"GET / HTTP/0.9", Reason.VERSION_NOT_SUPPORTED),
    ],
)
def test_request_lines_that_are_refused(line: bytes, reason: Reason) -> None:
    assert refused(line + b"\r\nHost: h\r\n\r\n") is reason


@pytest.mark.parametrize("method", [b"get", b"BREW", b"Post", b"X-Y"])
def test_an_unknown_method(method: bytes) -> None:
    """The method is refused at its first wrong byte; the exact reason needs the whole word."""
    data = method + b" / HTTP/1.1\r\nHost: h\r\n\r\n"
    assert read([data]) == [Reason.METHOD_UNKNOWN]
    for pieces in ways(data):
        assert read(pieces)[-1] in (Reason.METHOD_UNKNOWN, Reason.BAD_REQUEST), name_of(pieces)


@pytest.mark.parametrize(
    "host", [b"h", b"h:80", b"a-b.c_d:1", b"127.0.0.1:8080", b"[::1]", b"[::1]:443"]
)
def test_hosts_that_are_taken(host: bytes) -> None:
    head, _ = one(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
    assert head.lines == []  # the replica gets a Host of its own


@pytest.mark.parametrize(
    "fields",
    [
        b"",
        b"Host:\r\n",
        b"Host: a\r\nHost: a\r\n",
        b"Host: a\r\nhost: b\r\n",
        b"Host: a, b\r\n",
        b"Host: u@h\r\n",
        b"Host: h/path\r\n",
        b"Host: h:port\r\n",
        b"Host: h:123456\r\n",
        b"Host: h h\r\n",
    ],
)
def test_hosts_that_are_refused(fields: bytes) -> None:
    assert refused(b"GET / HTTP/1.1\r\n%b\r\n" % fields) is Reason.BAD_HOST


def test_http_1_0_needs_no_host_and_closes_by_default() -> None:
    head, _ = one(b"GET / HTTP/1.0\r\n\r\n")
    assert (head.http_1_0, head.keep_alive) == (True, False)
    assert one(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")[0].keep_alive
    both = b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n"
    assert not one(both)[0].keep_alive


# -- fields -----------------------------------------------------------------------------------


def test_fields_of_the_connection_end_here() -> None:
    fields = [
        b"Keep-Alive: timeout=5",
        b"Proxy-Connection: keep-alive",
        b"Proxy-Authorization: Basic x",
        b"TE: trailers",
        b"Trailer: X-T",
        b"Upgrade: h2c",
        b"Connection: X-Before, X-After, keep-alive",
        b"X-Conversation-Id: 1",
        b"X-Router-Anything: 1",
        b"Content_Length: 7",
    ]
    head, _ = one(get(b"X-Before: 1", *fields, b"x-after: 2", b"X-Kept: yes"))
    assert head.lines == [b"X-Kept: yes"]
    assert head.keep_alive


@pytest.mark.parametrize(
    "name",
    [
        *(b"Host", b"content-length", b"Transfer-Encoding", b"AUTHORIZATION", b"X-Forwarded-For"),
        *(b"Content-Type", b"content-encoding", b"x-api-key", b"X-Session-Id", b"x-priority"),
    ],
)
def test_connection_may_not_name_what_is_not_its_own(name: bytes) -> None:
    assert refused(get(b"Connection: close, " + name)) is Reason.BAD_HEADER


@pytest.mark.parametrize("second", [b"content-type: a/b; q=1", b"Content-Type: text/plain"])
def test_two_content_types_are_refused(second: bytes) -> None:
    assert refused(get(b"Content-Type: a/b", b"X-A: 1", second)) is Reason.BAD_HEADER


def test_two_connection_fields_are_one_list() -> None:
    head, _ = one(get(b"Connection: x-a", b"X-A: 1", b"Connection: close", b"X-B: 2"))
    assert head.lines == [b"X-B: 2"]
    assert not head.keep_alive


def test_the_fields_that_are_read_are_reported() -> None:
    data = post(
        b"{}",
        b"Content-Type: application/json",
        b"Content-Encoding: GZip",
        b"Authorization: Bearer k",
        b"X-Request-Id: r-1",
        b"X-Forwarded-For: 1.2.3.4",
        b"x-forwarded-for: 5.6.7.8",
        b"X-Forwarded-Proto: https",
        b"Via: 1.1 elsewhere",
        b"X-Router-Model: m",
        b"Content-Length: 2",
    )
    head, body = one(data)
    assert body == b"{}"
    assert head.content_type == b"application/json"
    assert head.content_encoding == b"gzip"
    assert head.authorization == b"Authorization: Bearer k"
    assert head.request_id == b"r-1"
    assert head.proxies.forwarded_for == b"1.2.3.4, 5.6.7.8"
    assert head.proxies.forwarded_other == [b"X-Forwarded-Proto: https"]
    assert head.proxies.via == [b"1.1 elsewhere"]
    assert head.routing.model == b"m"
    assert head.lines == [b"Content-Type: application/json", b"Content-Encoding: GZip"]


@pytest.mark.parametrize(
    ("via", "is_loop"),
    [
        (b"1.1 hedgerow", True),
        (b"1.1 HEDGEROW", True),
        (b"HTTP/1.1 hedgerow", True),
        (b"1.0 hedgerow (a comment)", True),
        (b"1.1 hedgerow, 1.1 nginx", True),
        (b"1.1 nginx, 1.1 hedgerow", True),
        (b"1.1 nginx,1.1 hedgerow,1.1 other", True),
        (b"1.1 nginx (debian), 1.1 hedgerow", True),
        (b"1.1 a, 1.1 b, 1.1 c, 1.1 hedgerow", True),
        (b"1.1 nginx", False),
        (b"1.1 hedgerow-2", False),
        (b"1.1 a, 1.1 b", False),
    ],
)
def test_our_own_name_in_via_is_a_loop(via: bytes, is_loop: bool) -> None:
    story = read_all_ways(get(b"Via: " + via))
    assert (story[-1] is Reason.LOOP) == is_loop, story


def test_a_second_via_field_is_checked_too() -> None:
    assert refused(get(b"Via: 1.1 nginx", b"Via: 1.1 hedgerow")) is Reason.LOOP


def test_our_name_may_have_capitals() -> None:
    """The configuration allows capitals, and RFC 9110 section 7.6.3 compares names without case."""
    assert read([get(b"Via: 1.1 Hedgerow-EU")], via=b"Hedgerow-EU") == [Reason.LOOP]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([b"Content-Length: 2", b"Content-Length: 2"], Reason.BAD_REQUEST),
        ([b"Content-Length: 2", b"Content-Length: 3"], Reason.BAD_REQUEST),
        ([b"Content-Length: 2, 2"], Reason.BAD_REQUEST),
        ([b"Content-Length: +2"], Reason.BAD_REQUEST),
        ([b"Content-Length: 0x2"], Reason.BAD_REQUEST),
        ([b"Content-Length: "], Reason.BAD_REQUEST),
        ([b"Content-Length: -1"], Reason.BAD_REQUEST),
        ([b"Content-Length: " + b"9" * 30], Reason.BAD_REQUEST),
        ([b"Transfer-Encoding: gzip, chunked"], Reason.BAD_TRANSFER_ENCODING),
        ([b"Expect: something"], Reason.EXPECTATION_FAILED),
        ([b"Content-Length: 2", b"Expect: 200-maybe"], Reason.EXPECTATION_FAILED),
        ([b"Connection: Upgrade", b"Upgrade: websocket"], Reason.UPGRADE_NOT_SERVED),
        ([CHUNKED, b"Connection: Upgrade", b"Upgrade: websocket"], Reason.UPGRADE_NOT_SERVED),
        ([b"X: a\x00b"], Reason.BAD_REQUEST),
        ([b"X : a"], Reason.BAD_REQUEST),
        ([b"X: a", b" folded"], Reason.BAD_REQUEST),
        ([b"X: a\rb"], Reason.BAD_REQUEST),
        ([b"X: a\nY: b"], Reason.BAD_REQUEST),
        ([b"no colon"], Reason.BAD_REQUEST),
    ],
)
def test_fields_that_are_refused(fields: list[bytes], reason: Reason) -> None:
    assert refused(post(b"", *fields)) is reason


@pytest.mark.parametrize("encoding", [b"gzip", b"chunked, chunked", b"identity", b"xchunked", b""])
def test_transfer_codings_that_are_refused(encoding: bytes) -> None:
    data = post(b"0\r\n\r\n", b"Transfer-Encoding: " + encoding)
    assert refused(data) in (Reason.BAD_TRANSFER_ENCODING, Reason.BAD_REQUEST)


@pytest.mark.parametrize("order", [0, 1])
def test_length_and_coding_together_are_refused(order: int) -> None:
    fields = [b"Content-Length: 5", CHUNKED]
    data = post(b"0\r\n\r\n", *(fields if order else reversed(fields)))
    assert refused(data) is Reason.BAD_REQUEST


def test_http_1_0_has_no_chunks() -> None:
    data = b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert refused(data) is Reason.BAD_REQUEST


def test_expect_is_reported_and_not_forwarded() -> None:
    head, _ = one(post(b"hi", b"Content-Length: 2", b"Expect: 100-Continue"))
    assert head.expect_continue
    assert head.lines == []
    old = b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"
    assert not one(old)[0].expect_continue


@pytest.mark.parametrize(
    "fields",
    [
        [b"Upgrade: websocket"],  # not named in Connection: no upgrade is requested
        [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMA"],
    ],
)
def test_an_upgrade_that_may_be_ignored_is(fields: list[bytes]) -> None:
    assert one(get(*fields))[0].lines == []
    head, body = one(post(b"hi!", b"Content-Length: 3", *fields))
    assert (head.lines, body) == ([], b"hi!")
    head, body = one(post(b"3\r\nhi!\r\n0\r\n\r\n", CHUNKED, *fields))
    assert (head.lines, body) == ([], b"hi!")


@pytest.mark.parametrize(
    "body",
    [
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"-1\r\n",
        b"5_0\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"ffffffffffffffffff\r\n",
        b"\r\n",
        b"5;\n=x\r\nhello\r\n0\r\n\r\n",
        b"2\r\nhi\r\n0\r\n folded: x\r\n\r\n",
        b"2\r\nhi\r\n0\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_chunks_that_are_refused(body: bytes) -> None:
    assert refused(post(body, CHUNKED)) is Reason.BAD_REQUEST


def test_the_head_may_be_refused_before_its_body() -> None:
    def refuse(head: RequestHead) -> None:
        raise RouterError(Reason.NOT_FOUND, "no")

    reader = RequestReader(LIMITS, b"v")
    with pytest.raises(RouterError):
        feed(reader, post(b"hello", b"Content-Length: 5"), refuse)
    assert reader.take_body() == []


@pytest.mark.parametrize(
    "junk",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x03\x00\x00\x13", b"\x80\x81\x82\x83"],
)
def test_other_protocols_are_refused_at_their_first_bytes(junk: bytes) -> None:
    story = read([junk])
    assert story[-1] in (Reason.BAD_REQUEST, Reason.METHOD_UNKNOWN), story


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (b"1", b"0"),
        (b"010", b"9"),
        (b"1000000000", b"999999999"),
        (b"9" * 5000, b"999999999"),
        (b"-1", b"-1"),
        (b"", b""),
    ],
)
def test_the_forwards_of_options_are_counted(value: bytes, sent: bytes) -> None:
    head = one(b"OPTIONS /a HTTP/1.1\r\nHost: h\r\nMax-Forwards: " + value + b"\r\n\r\n")[0]
    assert head.target == b"/a"
    (line,) = head.lines
    assert line.lower() == b"max-forwards: " + sent


@pytest.mark.parametrize("value", [b"0", b"00", b"0" * 30])
def test_options_without_more_forwards_is_for_the_router(value: bytes) -> None:
    head = one(b"OPTIONS /a HTTP/1.1\r\nHost: h\r\nMax-Forwards: " + value + b"\r\n\r\n")[0]
    assert head.target == b"*"


def test_the_forwards_of_other_methods_are_not_counted() -> None:
    head = one(b"GET /a HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n")[0]
    assert (head.target, head.lines) == (b"/a", [b"Max-Forwards: 0"])
