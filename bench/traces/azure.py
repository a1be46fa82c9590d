"""Reads Azure's LLM inference traces of 2023 and 2024. They are CSV files with an arrival time and
two lengths per request, and without information about prefixes.

Source: Patel et al., "Splitwise", ISCA'24 (2023), and Stojkovic et al., "DynamoLLM", HPCA'25
(2024). `TIMESTAMP` has seven fractional digits (2023), or zero to six digits and a UTC offset
(2024). A time without an offset is UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from router.lab.simulator.traffic import Arrival
from router.lab.traces.lines import Lines, excerpt

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def matches(line: bytes) -> bool:
    return set(COLUMNS) <= {name.strip() for name in line.decode("utf-8", "replace").split(",")}


def read(lines: Lines) -> Iterator[Arrival]:
    rows = iter(lines)
    names = [name.strip() for name in next(rows).decode().split(",")]
    time, prompt, output = map(names.index, COLUMNS)
    for line in rows:
        cells = line.decode("utf-8", "replace").strip().split(",")
        try:
            when = datetime.fromisoformat(cells[time])
            tokens = int(cells[prompt]), int(cells[output])
        except (ValueError, IndexError):
            raise lines.error(f"not a time and two numbers: {excerpt(line)}") from None
        if tokens[0] < 1 or tokens[1] < 0:
            raise lines.error(f"numbers of tokens out of range: {excerpt(line)}")
        at = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        yield Arrival(lines.number, at.timestamp(), *tokens)
