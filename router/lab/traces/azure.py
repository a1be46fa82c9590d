"""Reads Azure's LLM inference traces of 2023 and 2024. They are CSV files with an arrival time and
two lengths per request, and without information about prefixes.

Source: Patel et al., "Splitwise", ISCA'24 (2023), and Stojkovic et al., "DynamoLLM", HPCA'25
(2024). `TIMESTAMP` has seven fractional digits (2023), or zero to six digits and a UTC offset
(2024). One file may have times of both kinds. Times are read with microsecond precision; a time
without an offset is UTC. `ContextTokens` and `GeneratedTokens` are integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from router.lab.simulator.traffic import Arrival
from router.lab.traces.columns import Table, names_of, tokens
from router.lab.traces.format import Format, ReadOptions
from router.lab.traces.lines import Lines, excerpt

_TIME: Final = "TIMESTAMP"
_INPUT: Final = "ContextTokens"
_OUTPUT: Final = "GeneratedTokens"
_NEEDED: Final = (_TIME, _INPUT, _OUTPUT)


def matches(line: bytes) -> bool:
    return set(_NEEDED) <= set(names_of(line))


def read(lines: Lines, options: ReadOptions) -> Iterator[Arrival]:
    table = Table(lines, _NEEDED)
    time, prompt, output = (table.names.index(name) for name in _NEEDED)
    parse = datetime.fromisoformat
    # The time of the first row; `zero_there` is the same time with its UTC offset. Arrival times
    # are differences from it.
    zero: datetime | None = None
    zero_there = datetime.min
    for cells in table:
        try:
            when = parse(cells[time])
        except ValueError:
            raise lines.error(f"{_TIME} is not a time: {excerpt(cells[time])}") from None
        if zero is None:
            zero_there = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
            zero = zero_there.astimezone(UTC).replace(tzinfo=None)
        yield Arrival(
            lines.number,
            (when - (zero if when.tzinfo is None else zero_there)).total_seconds(),
            tokens(lines, _INPUT, cells[prompt], 1),
            tokens(lines, _OUTPUT, cells[output], 0),
        )


AZURE: Final = Format(
    name="azure",
    description=f"CSV with the columns {', '.join(_NEEDED)}",
    matches=matches,
    read=read,
    block_tokens=512,  # unused, because the format has no prefix blocks
)
