"""The ways in which bytes can arrive: whole, one by one, and cut in two at every place."""

from __future__ import annotations

from collections.abc import Iterator


def ways(data: bytes) -> Iterator[list[bytes]]:
    """Every way, `data` given whole being the first."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def name_of(pieces: list[bytes]) -> str:
    """How a failing way is told apart."""
    if len(pieces) == 1:
        return "whole"
    return "bytewise" if len(pieces) > 2 else f"cut at {len(pieces[0])}"
