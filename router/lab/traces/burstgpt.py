"""Reads BurstGPT: CSV files with an arrival time in whole seconds, a model and two lengths. Some
files have session IDs.

Source: Wang et al., "BurstGPT", KDD'25, release v1.2: `Timestamp` (s from the midnight of the first
day), `Session ID` and `Elapsed time` (not in the first two files; no session for API calls),
`Model`, `Request tokens`, `Response tokens`, `Total tokens`, `Log Type`.

A row with 0 response tokens is a failed request. With `skip_failed` such a row is skipped;
otherwise it becomes an arrival without output tokens. The format has no information about prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern
from typing import Final

from router.lab.simulator.traffic import Arrival
from router.lab.traces.columns import Table, names_of, tokens
from router.lab.traces.format import Format, ReadOptions
from router.lab.traces.lines import Lines, excerpt

_TIME: Final = "Timestamp"
_INPUT: Final = "Request tokens"
_OUTPUT: Final = "Response tokens"
_NEEDED: Final = (_TIME, _INPUT, _OUTPUT)


def matches(line: bytes) -> bool:
    return set(_NEEDED) <= set(names_of(line))


def read(lines: Lines, options: ReadOptions) -> Iterator[Arrival]:
    table = Table(lines, _NEEDED)
    names = table.names
    time, prompt, output = (names.index(name) for name in _NEEDED)
    model = names.index("Model") if "Model" in names else None
    session = names.index("Session ID") if "Session ID" in names else None
    for cells in table:
        try:
            at = float(cells[time])
        except ValueError:
            raise lines.error(f"{_TIME} is not a number: {excerpt(cells[time])}") from None
        answer = tokens(lines, _OUTPUT, cells[output], 0)
        if not answer and options.skip_failed:
            lines.note("skipped: failed")
            continue
        yield Arrival(
            lines.number,
            at,
            tokens(lines, _INPUT, cells[prompt], 1),
            answer,
            model=None if model is None else intern(cells[model]),
            session=None if session is None else cells[session] or None,
        )


BURSTGPT: Final = Format(
    name="burstgpt",
    description=f"CSV with the columns {', '.join(_NEEDED)}",
    matches=matches,
    read=read,
    block_tokens=512,  # unused, because the format has no prefix blocks
    grid_s=1.0,
)
