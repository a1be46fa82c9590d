"""Puts the rows of a file into the order of their arrivals.

`by_arrival` sorts rows within a time window. `checked` raises an error for a row that is out of
order.

The rows of a public trace are in order of arrival. A row that is out of order usually means that
two files were joined. The rows of an access log are in order of the ENDS of the requests. A request
that took ten minutes is in the log ten minutes later than a short request that arrived at the same
time. So each row is held in a heap until the log is `window_s` seconds past its arrival.

Must never: hold more than `held_rows` rows or `HELD_BLOCKS` blocks, or yield arrivals out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final, TypeVar

from router.lab.simulator.traffic import Arrival
from router.lab.traces.format import TIME_MAX, ReadOptions
from router.lab.traces.lines import Lines

T = TypeVar("T")

# Maximum number of blocks of all held rows: 190 MB at six bytes per block.
HELD_BLOCKS: Final = 32_000_000


def checked(lines: Lines, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """Yield the arrivals. Raises TraceError for an arrival that is earlier than the previous
    arrival.
    """
    last = -TIME_MAX
    for arrival in arrivals:
        at = arrival.at
        if not last <= at <= TIME_MAX:  # also true for NaN
            if at < last:
                raise lines.error(
                    f"arrives {last - at:g} s before the previous row: not in order of time; "
                    "sort the rows by their time"
                )
            raise lines.error(f"invalid time: {at:g} s")
        last = at
        yield arrival


def by_arrival(
    lines: Lines, rows: Iterable[tuple[float, float, int, T]], options: ReadOptions, window_s: float
) -> Iterator[T]:
    """Sort rows by arrival time. `rows` has tuples (arrival time, write time, blocks, row).

    The write time is when the row was written to the file. Write times must be nearly ascending.
    For a file without write times, pass the arrival time twice. Raises TraceError for a row that
    arrives before a row that has been yielded.
    """
    held: list[tuple[float, int, int, T]] = []
    blocks_held = 0
    newest = passed = -inf
    is_full = False  # a row was yielded before the end of its window, to keep a limit
    for number, (at, written, blocks, row) in enumerate(rows):
        if not -TIME_MAX <= at <= written <= TIME_MAX:
            raise lines.error(f"invalid time: {at:g} s, {written - at:g} s long")
        if at < passed:
            raise lines.error(_late(newest - at, is_full, options, window_s))
        heappush(held, (at, number, blocks, row))
        blocks_held += blocks
        if written > newest:
            newest = written
        while held:
            is_over = len(held) > options.held_rows or blocks_held > HELD_BLOCKS
            if held[0][0] > newest - window_s:
                if not is_over:
                    break
                is_full = True
            passed, _, blocks, row = heappop(held)
            blocks_held -= blocks
            yield row
    while held:
        yield heappop(held)[3]


def sorted_within(
    lines: Lines, arrivals: Iterable[Arrival], options: ReadOptions, window_s: float
) -> Iterator[Arrival]:
    """Sort arrivals that are up to `window_s` seconds out of order."""
    rows = ((a.at, a.at, len(a.blocks), a) for a in arrivals)
    return by_arrival(lines, rows, options, window_s)


def _late(behind_s: float, is_full: bool, options: ReadOptions, window_s: float) -> str:
    late = f"arrived {behind_s:.1f} s before the newest row; "
    if is_full:
        most = f"{options.held_rows:,} rows or {HELD_BLOCKS:,} blocks"
        return late + f"no more than {most} are held for sorting; sort the rows by their time"
    return late + f"rows may be out of order by {window_s:g} s; sort the rows by their time"
