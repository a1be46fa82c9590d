"""Parsing cost is linear in the number of bytes received from a peer."""

from collections.abc import Callable
from time import process_time

import pytest

from router.wire.http1.sse import ErrorWatch, EventKind, FirstContent, find_error, judge

MOST = 9  # maximum cost ratio for four times the bytes; if quadratic, 16


def cost(call: Callable[[bytes], object], data: bytes) -> float:
    best = 1e9
    for _ in range(3):
        since = process_time()
        call(data)
        best = min(best, process_time() - since)
    return best


def grows(call: Callable[[bytes], object], unit: bytes, size: int, begin: bytes = b"") -> float:
    return cost(call, begin + unit * (4 * size // len(unit))) / cost(
        call, begin + unit * (size // len(unit))
    )


def watch(data: bytes) -> None:
    found = ErrorWatch()
    found.feed(data, True)
    assert not found.has_seen


@pytest.mark.parametrize("call", [watch, find_error])
@pytest.mark.parametrize(
    "unit", [b"\nevent: error", b"\nevent: error\n\n", b"\n\n", b'"error"\n\n']
)
def test_marks_of_errors(call: Callable[[bytes], object], unit: bytes) -> None:
    assert grows(call, unit, 150_000, b'data: "error"') <= MOST


def test_lines_of_one_event() -> None:
    assert grows(judge, b"data: 1,\n", 300_000) <= MOST


def test_an_event_ends_across_reads() -> None:
    """A search continues where the last one ended."""
    for event in (b"id: x\n\n", b"id: x\r\n\r\n", b"id: x\r\r"):
        scanner = FirstContent(10_000)
        for quiet in range(3):
            for at in range(len(event)):
                assert scanner.feed(event[at : at + 1]) == EventKind.NOTHING
            assert scanner.quiet == quiet + 1
