"""Puts the rows of an access log into the order of their arrivals.

The rows of a log are in order of the ENDS of the requests. A request that took ten minutes is in
the log ten minutes later than a short request that arrived at the same time. So each row is held in
a heap until the log is `WINDOW_S` seconds past its arrival.

Must never: hold more than `HELD_ROWS` rows or `HELD_BLOCKS` blocks, or yield arrivals out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final, TypeVar

from router.lab.traces.format import TIME_MAX
from router.lab.traces.lines import Lines

T = TypeVar("T")

# Seconds; requests end sooner, although long answers to agents take minutes.
WINDOW_S: Final = 900.0
HELD_ROWS: Final = 1_000_000
# Maximum number of blocks of all held rows: 190 MB at six bytes per block.
HELD_BLOCKS: Final = 32_000_000


def by_arrival(
    lines: Lines,
    rows: Iterable[tuple[float, float, int, T]],
    held_rows: int = HELD_ROWS,
    window_s: float = WINDOW_S,
) -> Iterator[T]:
    """Sort rows by arrival time. `rows` has tuples (arrival time, write time, blocks, row).

    The write time is when the row was written to the file. Write times must be nearly ascending.
    Raises TraceError for a row that arrives before a row that has been yielded.
    """
    held: list[tuple[float, int, int, T]] = []
    blocks_held = 0
    newest = passed = -inf
    is_full = False  # a row was yielded before the end of its window, to keep a limit
    for number, (at, written, blocks, row) in enumerate(rows):
        if not -TIME_MAX <= at <= written <= TIME_MAX:
            raise lines.error(f"invalid time: {at:g} s, {written - at:g} s long")
        if at < passed:
            why = (
                f"no more than {held_rows:,} rows or {HELD_BLOCKS:,} blocks are held for sorting"
                if is_full
                else f"rows may be out of order by {window_s:g} s"
            )
            raise lines.error(
                f"arrived {newest - at:.1f} s before the newest row; {why}; "
                "sort the rows by their time"
            )
        heappush(held, (at, number, blocks, row))
        blocks_held += blocks
        if written > newest:
            newest = written
        while held:
            is_over = len(held) > held_rows or blocks_held > HELD_BLOCKS
            if held[0][0] > newest - window_s:
                if not is_over:
                    break
                is_full = True
            passed, _, blocks, row = heappop(held)
            blocks_held -= blocks
            yield row
    while held:
        yield heappop(held)[3]
