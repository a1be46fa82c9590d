"""Arrivals in the order of their times, or an error that says which row is not.

Files of arrivals are in order already, and a row that goes back is a sign of two files joined. An
access log is in the order of the ENDS of its requests: a request that took ten minutes stands ten
minutes after those that arrived with it. So rows are held, the earliest first in a heap, until the
log has come `window_s` past them.

Must never: hold more than `held_rows` rows or `HELD_BLOCKS` blocks, or give arrivals out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final, TypeVar

from router.simulator.traffic import Arrival
from router.traces.format import TIME_MAX, ReadOptions
from router.traces.lines import Lines

T = TypeVar("T")

HELD_BLOCKS: Final = 32_000_000  # blocks of all held rows: 190 MB at six bytes a block


def checked(lines: Lines, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """The same arrivals. Raises TraceError at one that goes back in time."""
    last = -TIME_MAX
    for arrival in arrivals:
        at = arrival.at
        if not last <= at <= TIME_MAX:  # nor NaN
            if at < last:
                raise lines.error(
                    f"arrives {last - at:g} s before the row above: not in order of time "
                    "(window_s says by how many seconds rows may be out of it)"
                )
            raise lines.error(f"no time of this world: {at:g} s")
        last = at
        yield arrival


def by_arrival(
    lines: Lines, rows: Iterable[tuple[float, float, int, T]], options: ReadOptions, window_s: float
) -> Iterator[T]:
    """What comes with (arrival, written, blocks, row), in order of arrival.

    `written` is when the line was written, or is taken to be, and nearly ascends. Raises TraceError
    at a row whose turn has passed.
    """
    held: list[tuple[float, int, int, T]] = []
    blocks_held = 0
    newest = passed = -inf
    is_full = False  # rows had to go before their time
    for number, (at, written, blocks, row) in enumerate(rows):
        if not -TIME_MAX <= at <= written <= TIME_MAX:
            raise lines.error(f"no time of this world: {at:g} s, {written - at:g} s long")
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
    """Arrivals that may be up to `window_s` out of order, in order."""
    rows = ((a.at, a.at, len(a.blocks), a) for a in arrivals)
    return by_arrival(lines, rows, options, window_s)


def _late(behind_s: float, is_full: bool, options: ReadOptions, window_s: float) -> str:
    late = f"arrived {behind_s:.1f} s before the newest row, and later arrivals have gone on: "
    if is_full:
        return late + f"raise held_rows (it is {options.held_rows:,})"
    return late + f"raise window_s (it is {window_s:g})"
