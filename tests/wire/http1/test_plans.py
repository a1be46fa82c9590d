"""Cached heads: an earlier message must never change the result for a later one.

Every message is read without a cache, and again after readers of other connections have read all
the others; both results must be equal.
"""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.config.model import Limits
from router.core.errors import Reason, RouterError
from router.wire.http1.heads import RequestHead, ResponseHead
from router.wire.http1.plans import CAPACITY, LONGEST, Known, Plans, parts_of
from router.wire.http1.request_reader import COMPLETE, RequestReader
from router.wire.http1.response_reader import BadResponse, ResponseReader
from tests.examples import examples
from tests.wire.http1.heads import feed, told

LIMITS = Limits(body=1000)
# Values in place of a length, and fields that may accompany it.
LENGTHS = ["5", "0", "05", "", " 5", "5 ", "+5", "-5", "0x5", "5,5", "5_", "1001", "9" * 19, "x"]
OTHERS = [
    (),
    ("X-A: 1",),
    ("Content-Length: 5",),
    ("content-length: 5",),
    ("CONTENT-LENGTH: 5",),
    ("Transfer-Encoding: chunked",),
    ("X-A: content-length: 5",),
    ("Connection: close",),
    ("Expect: 100-continue",),
]
NAMES = ["content-length", "Content-Length", "CONTENT-LENGTH", "X-Content-Length"]
BODY = b"0\r\n\r\n"  # five bytes, and an end of chunks


def heads(start: str) -> list[bytes]:
    """Every combination, with the length before and after the other field, and without one."""
    found = []
    for others in OTHERS:
        found.append([*others])
        for name in NAMES:
            for length in LENGTHS:
                found.append([f"{name}: {length}", *others])
                found.append([*others, f"{name}: {length}"])
                found.append([f"{name}:{length}", *others])
    return ["\r\n".join([start, "Host: h", *fields, "", ""]).encode() for fields in found]


REQUESTS = heads("POST /p HTTP/1.1")
RESPONSES = heads("HTTP/1.1 200 OK")


def request_reader(head: bytes, plans: Plans[RequestHead] | None = None) -> RequestReader:
    reader = RequestReader(LIMITS, b"v", plans)
    feed(reader, head + BODY)
    return reader


def read_request(head: bytes, plans: Plans[RequestHead] | None = None) -> Any:
    try:
        reader = request_reader(head, plans)
    except RouterError as err:
        return err.reason
    return told(reader.head), reader.state, reader.take_body(), reader.early


def read_response(head: bytes, plans: Plans[ResponseHead] | None = None) -> Any:
    reader = ResponseReader(LIMITS, plans=plans)
    try:
        reader.feed(head + BODY)
    except BadResponse:
        return "bad"
    return told(reader.head), reader.state, b"".join(reader.parts), reader.surplus


def test_requests_are_read_alike_whatever_was_read_before() -> None:
    plans: Plans[RequestHead] = Plans()
    twice = REQUESTS + REQUESTS
    wrong = [head for head in twice if read_request(head, plans) != read_request(head)]
    assert not wrong, (len(wrong), wrong[:3])


def test_responses_are_read_alike_whatever_was_read_before() -> None:
    plans: Plans[ResponseHead] = Plans()
    twice = RESPONSES + RESPONSES
    wrong = [head for head in twice if read_response(head, plans) != read_response(head)]
    assert not wrong, (len(wrong), wrong[:3])


@examples(150)
@given(st.lists(st.sampled_from(REQUESTS), min_size=2, max_size=6))
def test_requests_in_any_order(several: list[bytes]) -> None:
    plans: Plans[RequestHead] = Plans()
    for head in several:
        assert read_request(head, plans) == read_request(head)


@pytest.mark.parametrize("length", ["", " "])
def test_an_empty_length_does_not_take_the_one_before(length: str) -> None:
    """The previous head may have been another client's, with a body of another size."""
    plans: Plans[RequestHead] = Plans()
    start = "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: "
    read_request(f"{start}5\r\n\r\n".encode(), plans)
    empty = f"{start}{length}\r\n\r\n".encode()
    assert read_request(empty, plans) == read_request(empty)


@examples(150)
@given(st.lists(st.sampled_from(REQUESTS), min_size=2, max_size=6))
def test_requests_of_one_connection_in_any_order(several: list[bytes]) -> None:
    """Each head is compared with the one before it first."""
    plans: Plans[RequestHead] = Plans()
    reader = RequestReader(LIMITS, b"v", plans)
    for head in several:
        expected = read_request(head)
        try:
            feed(reader, head + BODY)
        except RouterError as err:
            assert err.reason == expected
            reader = RequestReader(LIMITS, b"v", plans)
            continue
        body = reader.take_body() if reader.state == COMPLETE else []
        assert (told(reader.head), reader.state, body or expected[2], reader.early) == expected
        reader.reset()
        reader.early = b""


def test_a_refused_head_is_not_kept() -> None:
    plans: Plans[RequestHead] = Plans()

    def refuse(head: RequestHead) -> None:
        raise RouterError(Reason.NOT_FOUND, "no")

    data = b"GET /secret HTTP/1.1\r\nHost: h\r\n\r\n"
    for _ in range(2):
        with pytest.raises(RouterError):
            feed(RequestReader(LIMITS, b"v", plans), data, refuse)


def test_requests_share_nothing_that_one_could_change() -> None:
    plans: Plans[RequestHead] = Plans()
    data = b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: x-a\r\nX-A: 1\r\nX-B: 2\r\n\r\n"
    first = request_reader(data, plans).head
    first.route = "a note"
    first.content_length = 7
    second = request_reader(data, plans).head
    assert second.content_length is None
    assert second.lines == [b"X-B: 2"]


def test_the_memory_is_bounded() -> None:
    plans: Plans[RequestHead] = Plans()
    for n in range(3 * CAPACITY):
        plans.keep(b"%d" % n, RequestHead())
        assert len(plans.found) <= CAPACITY
    plans.clear()
    plans.keep(b"x" * (LONGEST + 1), RequestHead())
    assert plans.found == {}


@pytest.mark.parametrize(
    ("raw", "length"),
    [
        (b"A: 1\r\nContent-Length: 12\r\nB: 2\r\n\r\n", 12),
        (b"A: 1\r\ncontent-length: 12\r\n\r\n", 12),
        (b"A: 1\r\nCONTENT-LENGTH: 12\r\n\r\n", None),
        (b"A: content-length: 12\r\n\r\n", None),
        (b"A: 1\r\n\r\n", None),
    ],
)
def test_parts(raw: bytes, length: int | None) -> None:
    before, after, found = parts_of(raw)
    if length is None:
        assert (before, after, found) == (raw, b"", -1)
    else:
        assert (before + b"12" + after, found) == (raw, 12)
    known = Known(before, after, length is not None, RequestHead())
    assert known.match(raw) == (len(raw), length or 0)
    assert known.match(raw + b"more") == (len(raw), length or 0)


SAME = b"A: 1\r\nContent-Length: %b\r\nB: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "length"),
    [
        (SAME % b"5", 5),
        (SAME % b"005", 5),
        (SAME % b"1234567", 1234567),
        (SAME % b"", -1),
        (SAME % b" 5", -1),
        (SAME % b"5 ", -1),
        (SAME % (b"9" * 19), -1),
        (SAME % b"5\r\nB: 2", -1),
        (SAME.replace(b"A: 1", b"A: 2") % b"5", -1),
        (SAME.replace(b"B: 2", b"B: 3") % b"5", -1),
        (SAME.replace(b"Content", b"content") % b"5", -1),
        ((SAME % b"5")[:-2], -1),
        (b"A: 1\r\nContent-Length: ", -1),
        (b"", -1),
    ],
)
def test_another_head_is_not_taken_for_the_known_one(raw: bytes, length: int) -> None:
    before, after, _ = parts_of(SAME % b"12")
    found = Known(before, after, True, RequestHead()).match(raw + b"the body")
    assert found == ((len(raw), length) if length >= 0 else (-1, -1))


def test_a_head_without_a_length_is_known_as_a_whole() -> None:
    known = Known(b"A: 1\r\n\r\n", b"", False, RequestHead())
    assert known.match(b"A: 1\r\n\r\n") == known.match(b"A: 1\r\n\r\n ") == (8, 0)
    assert known.match(b"A: 1\r\n") == known.match(b"A: 1") == (-1, -1)


@pytest.mark.parametrize("number", [b"", b" ", b"+1", b"1 ", b"1,1", b"x", b"9" * 19])
def test_a_length_that_is_no_number_has_no_key(number: bytes) -> None:
    assert parts_of(b"A: 1\r\nContent-Length: " + number + b"\r\n\r\n") == (b"", b"", -1)


@pytest.mark.parametrize("field", ["Content-Length:5", "CONTENT-LENGTH: 5", "Content-Length:\t5"])
def test_a_length_in_a_spelling_of_its_own_still_counts(field: str) -> None:
    """If the length did not count, the body would be read as the next request."""
    plans: Plans[RequestHead] = Plans()
    head = f"POST /p HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n".encode()
    for _ in range(3):
        assert read_request(head, plans) == read_request(head)
