"""Classification of header lines: correct, cached, bounded, and no caching of secrets."""

import pytest

from router.wire.http1 import headers as h
from router.wire.http1.routing_headers import DECLARED, RoutingHeader, RoutingHeaders


def fresh() -> h.Sorter:
    return h.Sorter(h._REQUEST, b"x-router-")


@pytest.mark.parametrize(
    ("line", "action", "value"),
    [
        (b"Host: a", h.HOST, b"a"),
        (b"HOST:a", h.HOST, b"a"),
        (b"Content-Length: \t5 ", h.CONTENT_LENGTH, b"5"),
        (b"Keep-Alive: x", h.DROP, b"x"),
        (b"X_Anything: x", h.DROP, b"x"),
        (b"X-Router-Foo: x", h.DROP, b"x"),
        (b"X-Router-Model: m", h.ROUTING, b"m"),
        (b"X-Api-Key: k", h.API_KEY, b"k"),
        (b"X-Trace-Id: k", h.PASS, b""),
        (b"Cookie: a=b", h.PASS, b""),
    ],
)
def test_a_line_is_sorted(line: bytes, action: int, value: bytes) -> None:
    sorter = fresh()
    assert sorter.sort(line) == (action, value)
    assert sorter.memo.get(line, (action, value)) == (action, value)


@pytest.mark.parametrize(
    "line",
    [
        b"Authorization: Bearer secret",
        b"X-Request-Id: 1",
        b"X-Forwarded-For: 1.2.3.4",
        b"Content-Length: 77",
        b"X-Long: " + b"x" * 300,
    ],
)
def test_what_changes_or_is_secret_is_not_remembered(line: bytes) -> None:
    sorter = fresh()
    sorter.sort(line)
    assert sorter.memo == {}


def test_the_memory_is_bounded() -> None:
    sorter = fresh()
    for n in range(20_000):
        sorter.sort(b"X-%d: y" % n)
    assert len(sorter.memo) <= 4096


def test_a_response_keeps_its_own_rules() -> None:
    sorter = h.Sorter(h._RESPONSE, b"x-router-")
    assert sorter.sort(b"Host: a") == (h.PASS, b"")
    assert sorter.sort(b"X-Request-Id: a") == (h.DROP, b"a")


def test_members_of_connection() -> None:
    assert h.connection_tokens(b" Close,, X-A ,keep-alive,") == [b"close", b"x-a", b"keep-alive"]
    assert h.connection_tokens(b"") == []


def test_lines_are_left_out_by_name() -> None:
    lines = [b"A: 1", b"X-a: 2", b"a:3", b"B:"]
    assert h.without(lines, {b"a"}) == [b"X-a: 2", b"B:"]


@pytest.mark.parametrize("declared", DECLARED, ids=lambda header: header.name.decode())
def test_a_declared_header_is_sorted_read_and_protected(declared: RoutingHeader) -> None:
    """Holds for any usable value."""
    sorter, line = fresh(), declared.name.title() + b": 30"
    action, value = sorter.sort(line)
    assert DECLARED[action - h.ROUTING] is declared
    assert (line in sorter.memo) == declared.is_memoized
    assert declared.name in h.PROTECTED
    before, after = RoutingHeaders(), RoutingHeaders()
    usable = {b"grpc-timeout": value + b"S", b"x-ttft-estimate": b"true"}
    usable[b"x-served-region"] = b"true"
    declared.read(usable.get(declared.name, value), after)
    names = [name for name in dir(after) if not name.startswith("_")]
    assert [getattr(after, n) for n in names] != [getattr(before, n) for n in names]
