"""ErrorWatch: finds an error inside a stream for all cuts of the bytes, and judges all of it.

The tests call it as the router does: for reads that contain `"error"` or are cut in an event.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from router.wire.http1.sse import ErrorWatch, find_error
from tests.examples import examples
from tests.harness.messages import DONE, event, token
from tests.harness.splits import name_of, ways

OWN = [
    event({"error": {"message": "m", "type": "InternalServerError", "param": None, "code": 500}}),
    event({"error": {"object": "error", "message": "m", "code": 503}}),
    event({"error": "in words", "error_type": "generation"}),
    b'data:{"error":{"message":"m","http_status_code":500}}\n\n',
    b"event: error\n" + event({"type": "error", "error": {"type": "api_error", "message": "m"}}),
    event({"error": {"message": "x" * 3000, "code": 500}}),
]
CLIENTS = [
    event({"error": {"message": "m", "code": 400}}),
    event({"error": {"message": "x" * 3000, "code": 404}}),
    event({"error": {"message": "m", "http_status_code": 422}}),
]
NONE = [
    token("a"),
    token('data: {"error": {"code": 500}}'),
    token("event: error"),
    event({"choices": [], "error": None}),
    b": error\n\n",
    b"event: error\n\n",
    DONE,
]


def watched(pieces: Iterable[bytes]) -> ErrorWatch:
    watch = ErrorWatch()
    was_cut = False
    for piece in pieces:
        is_cut = not piece.endswith(b"\n\n")
        if was_cut or is_cut or b'"error"' in piece:
            watch.feed(piece, is_cut)
        was_cut = is_cut
    return watch


def splits(data: bytes) -> Iterable[list[bytes]]:
    if len(data) < 1000:
        return ways(data)
    return [[data], *([data[at : at + n] for at in range(0, len(data), n)] for n in (1, 7, 1000))]


@pytest.mark.parametrize("report", OWN, ids=lambda value: repr(value)[:60])
def test_an_engines_own_error(report: bytes) -> None:
    for pieces in splits(token("a") + report + DONE):
        watch = watched(pieces)
        assert watch.has_seen, name_of(pieces)
        assert watch.blames_server, name_of(pieces)


@pytest.mark.parametrize("report", CLIENTS, ids=lambda value: repr(value)[:60])
def test_a_clients_error_is_not_blamed_on_the_replica(report: bytes) -> None:
    """The error code comes last: before the code, no failure may be attributed to the engine."""
    for pieces in splits(token("a") + report + DONE):
        watch = watched(pieces)
        assert watch.has_seen, name_of(pieces)
        assert not watch.blames_server, name_of(pieces)


@pytest.mark.parametrize("data", NONE, ids=lambda value: repr(value)[:60])
def test_text_that_speaks_of_errors_is_none(data: bytes) -> None:
    for pieces in splits(token("a") + data + DONE):
        watch = watched(pieces)
        assert not watch.has_seen, name_of(pieces)
        assert not watch.blames_server, name_of(pieces)


def test_the_first_error_decides() -> None:
    watch = watched([CLIENTS[0], OWN[0]])
    assert watch.has_seen
    assert not watch.blames_server


def test_what_is_kept_is_bounded() -> None:
    watch = ErrorWatch()
    watch.feed(b'data: {"error":"', True)
    for _ in range(100):
        watch.feed(b"x" * 10_000, True)
    assert watch.has_seen
    assert len(watch._report) <= 16 * 1024
    calm = ErrorWatch()
    for _ in range(100):
        calm.feed(b"x" * 10_000, True)
        assert len(calm._seam) <= 64


@examples(200)
@given(
    before=st.lists(st.sampled_from(NONE), max_size=3),
    report=st.sampled_from([None, *OWN, *CLIENTS]),
    after=st.lists(st.sampled_from(NONE), max_size=2),
    sizes=st.lists(st.integers(1, 80), min_size=1, max_size=8),
)
def test_cutting_never_changes_what_is_seen(
    before: list[bytes], report: bytes | None, after: list[bytes], sizes: list[int]
) -> None:
    data = b"".join([*before, report or b"", *after])
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    watch = watched(pieces)
    assert watch.has_seen == (report is not None)
    assert watch.blames_server == (report in OWN)


@pytest.mark.parametrize("error", [*OWN, *CLIENTS, b"id: 1\n" + OWN[0]])
@pytest.mark.parametrize("before", [b"", *NONE])
def test_where_an_error_begins(before: bytes, error: bytes) -> None:
    assert find_error(before + error + DONE) == len(before)
    assert find_error(before) == -1
