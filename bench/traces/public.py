"""Reads a trace of Mooncake or Azure as `Traffic`, lazily, once per pass.

A pass yields arrivals in order of time with consecutive numbers, and time 0 is the first one. Each
pass opens the file again and yields exactly the same arrivals.

Mooncake's times are multiples of 3,000 ms, with about ten requests at each time. Without spreading,
each of these slots would begin with a burst that did not happen. The requests of a slot get sorted
uniform random times, as in a Poisson process of which only the number of requests per slot is
known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby, islice
from pathlib import PurePath
from random import Random
from typing import Final

from bench.traces import azure, mooncake
from router.lab.simulator.traffic import Arrival, TraceError
from router.lab.traces.lines import Lines

_SLOT_S: Final = 3.0
# Tolerance in seconds; Mooncake's times differ from the multiples by up to 3 ms.
_NEAR_S: Final = 0.005
_HEAD_ROWS: Final = 1000  # rows that show whether times are rounded


class PublicTrace:
    """The traffic of one file, gzip or plain.

    `limit`: the maximum number of requests; `since_s`: read from this time on, which is then time
    0; `speedup`: arrival times are divided by this. Raises TraceError and OSError.
    """

    block_tokens = mooncake.BLOCK_TOKENS

    def __init__(
        self,
        path: str,
        *,
        spread_seed: int = 1,
        limit: int | None = None,
        since_s: float = 0.0,
        speedup: float = 1.0,
    ) -> None:
        self.name = PurePath(path).name
        self._path = path
        self._seed = spread_seed
        self._limit = limit
        self._since_s = since_s
        self._speedup = speedup
        with closing(Lines(path)) as lines:
            first = next(iter(lines), b"")
        self._read = azure.read if azure.matches(first) else mooncake.read
        with closing(Lines(path)) as lines:
            times = [arrival.at for arrival in islice(self._read(lines), _HEAD_ROWS)]
        if not times:
            raise TraceError(path, 1, "no requests")
        self.slot_s = _SLOT_S if is_rounded(times) else 0.0

    def __iter__(self) -> Iterator[Arrival]:
        with closing(Lines(self._path)) as lines:
            yield from islice(self._selected(lines), self._limit)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """No requests follow an answer, because the times of a trace are fixed."""
        return ()

    def _selected(self, lines: Lines) -> Iterator[Arrival]:
        arrivals = _in_order(lines, self._read(lines))
        if self.slot_s:
            arrivals = spread(arrivals, self.slot_s, self._seed)
        zero: float | None = None
        number = 0
        for arrival in arrivals:
            if zero is None:
                zero = arrival.at + self._since_s
            if arrival.at >= zero:
                arrival.at = (arrival.at - zero) / self._speedup
                arrival.number = number
                number += 1
                yield arrival


def is_rounded(times: Sequence[float]) -> bool:
    """Whether all times after the first arrival are multiples of the slot."""
    return all((at - times[0] + _NEAR_S) % _SLOT_S <= 2.0 * _NEAR_S for at in times)


def spread(arrivals: Iterable[Arrival], slot_s: float, seed: int) -> Iterator[Arrival]:
    """Move each arrival to a random time within its slot. The order of the rows stays the same."""
    rng = Random(seed)
    slots = groupby(arrivals, key=lambda arrival: arrival.at)
    group: list[Arrival] = []
    for at, members in slots:
        if group:
            yield from _spaced(group, min(slot_s, at - group[0].at), rng)
        group = list(members)
    yield from _spaced(group, slot_s, rng)


def _spaced(group: list[Arrival], width_s: float, rng: Random) -> Iterator[Arrival]:
    offsets = sorted([rng.random() for _ in group])
    for arrival, offset in zip(group, offsets, strict=True):
        arrival.at += width_s * offset
        yield arrival


def _in_order(lines: Lines, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    last = 0.0
    for arrival in arrivals:
        if not arrival.at >= last:  # also true for NaN
            raise lines.error(f"arrives {last - arrival.at:g} s before the previous row")
        last = arrival.at
        yield arrival
