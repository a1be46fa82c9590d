"""Splits of a byte string into reads: whole, byte by byte, and cut in two at every position."""

from collections.abc import Iterator


def ways(data: bytes) -> Iterator[list[bytes]]:
    """Every split, beginning with the whole of `data`."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def name_of(pieces: list[bytes]) -> str:
    """A name for a split, for failure messages."""
    if len(pieces) == 1:
        return "whole"
    return "bytewise" if len(pieces) > 2 else f"cut at {len(pieces[0])}"
