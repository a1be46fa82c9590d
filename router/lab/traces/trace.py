"""Reads a file of any known format as `Traffic`, lazily, once per pass.

A pass yields arrivals in order of time with consecutive numbers. Time 0 is `since_s` seconds after
the first arrival of the file. Each pass opens the file again and yields exactly the same arrivals.
Must never: hold more than the current line and the rows that the reader holds for sorting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from math import inf
from os import PathLike, fspath, stat
from pathlib import PurePath
from stat import S_ISREG
from typing import Final

from router.lab.simulator.traffic import Arrival, TraceError
from router.lab.traces.azure import AZURE
from router.lab.traces.format import HEAD_BYTES, HEAD_ROWS, Format, ReadOptions, is_event
from router.lab.traces.hedgerow import HEDGEROW
from router.lab.traces.lines import Lines, excerpt
from router.lab.traces.mooncake import MOONCAKE
from router.lab.traces.order import checked, sorted_within
from router.lab.traces.spread import is_on_grid, spread

_ALL: Final = (MOONCAKE, AZURE, HEDGEROW)
FORMATS: Final = tuple(known.name for known in _ALL)
_LOOKED_AT: Final = (
    8  # The number of lines among which a whole line of an access log is looked for.
)


class Trace:
    """One trace file. Created by `open_trace`."""

    def __init__(
        self,
        path: str,
        format: Format,
        options: ReadOptions,
        *,
        spread_seed: int | None = 1,
        limit: int | None = None,
        speedup: float = 1.0,
        since_s: float = 0.0,
        until_s: float | None = None,
        model: str | None = None,
    ) -> None:
        self.path = path
        self.name = PurePath(path).name
        self.format = format.name
        self.block_tokens = options.block_tokens
        # Arrivals are spread over this many seconds; 0: not spread.
        self.slot_s = options.slot_s or 0.0
        self._format = format
        self._options = options
        self._seed = spread_seed
        self._limit = limit
        self._speedup = speedup
        self._since_s = since_s
        self._until_s = inf if until_s is None else until_s
        self._model = model
        self._lines: Lines | None = None  # the lines of the latest pass
        # The time on the file's own clock, in s, that is time 0 of the latest pass.
        self.zero_s = 0.0

    def __iter__(self) -> Iterator[Arrival]:
        """Read the file once and yield its arrivals. Raises TraceError and OSError."""
        lines = self._lines = Lines(self.path)
        with closing(lines):
            yield from self._selected(lines)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """No requests follow an answer, because the times of a trace are fixed."""
        return ()

    def position(self) -> tuple[int, int]:
        """Bytes read by the latest pass, and the size of the file on disk in bytes."""
        return (0, stat(self.path).st_size) if self._lines is None else self._lines.position()

    def share(self) -> float:
        """The share of the file that the latest pass has read, 0 to 1."""
        read, total = self.position()
        return min(read / total, 1.0) if total else 1.0

    def notes(self) -> dict[str, int]:
        """Counts of rows that the latest pass skipped or completed by estimates."""
        return {} if self._lines is None else dict(self._lines.notes)

    def _ordered(self, lines: Lines) -> Iterator[Arrival]:
        options = self._options
        arrivals = self._format.read(lines, options)
        if not self._format.sorts:
            window_s = options.window_s
            if window_s:
                arrivals = sorted_within(lines, arrivals, options, window_s)
            else:
                arrivals = checked(lines, arrivals)
        if self.slot_s and self._seed is not None:
            arrivals = spread(lines, arrivals, self.slot_s, self._seed)
        return arrivals

    def _selected(self, lines: Lines) -> Iterator[Arrival]:
        number = 0
        speedup, limit, model = self._speedup, self._limit, self._model
        since, until = self._since_s, self._until_s
        zero: float | None = None
        for arrival in self._ordered(lines):
            if zero is None:
                zero = arrival.at
                self.zero_s = zero + since
            after = arrival.at - zero
            if after < since or (model is not None and arrival.model != model):
                continue
            if after >= until:
                break
            arrival.at = (after - since) / speedup
            arrival.number = number
            number += 1
            yield arrival
            if number == limit:
                return
        if not number:
            raise lines.error("no request in the selected time, or none of the selected model")


def open_trace(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    block_tokens: int | None = None,
    spread_seed: int | None = 1,
    slot_s: float | None = None,
    window_s: float | None = None,
    held_rows: int = 1_000_000,
    since_s: float = 0.0,
    until_s: float | None = None,
    model: str | None = None,
    skip_failed: bool = False,
    output_tokens: int | None = None,
    limit: int | None = None,
    speedup: float = 1.0,
) -> Trace:
    """Open a trace, gzip or plain. `format`: a name in `FORMATS`; None: detected by the first line.

    - `block_tokens`: tokens per block of the file; None: the format's default, or measured.
    - `slot_s`: rounded times are spread over this many seconds; None: measured from the times.
    - `spread_seed`: the random seed for spreading; None: the times stay unchanged.
    - `window_s`: by how many seconds rows may be out of order; None: 900 for an access log, 0 for
      other formats. `held_rows`: the maximum number of rows held for sorting.
    - `since_s`, `until_s`: read only this part, in seconds after the first request.
    - `model`: read only the requests of this model.
    - `skip_failed`: leave out failed requests.
    - `output_tokens`: the length of answers without a token count; None: the log's mean.
    - `limit`: the maximum number of requests. `speedup`: arrival times are divided by this.

    The first rows of the file are read at once. Raises TraceError, OSError, and ValueError for an
    option that is out of range.
    """
    _check(
        at_least_1=(block_tokens, held_rows, output_tokens, limit),
        at_least_0=(slot_s, window_s, since_s),
        is_other_fine=speedup > 0.0 and (until_s is None or until_s > since_s),
    )
    name = fspath(path)
    if not S_ISREG(stat(name).st_mode):
        raise TraceError(name, 1, "not a regular file; the file must be readable more than once")
    options = ReadOptions(
        block_tokens=block_tokens or 0,
        slot_s=slot_s,
        window_s=window_s,
        held_rows=held_rows,
        skip_failed=skip_failed,
        output_tokens=output_tokens or 0,
    )
    known = _named(format) if format is not None else _detected(name)
    return Trace(
        name,
        known,
        _completed(name, known, options),
        spread_seed=spread_seed,
        limit=limit,
        speedup=speedup,
        since_s=since_s,
        until_s=until_s,
        model=model,
    )


def _check(
    at_least_1: Iterable[int | None], at_least_0: Iterable[float | None], is_other_fine: bool
) -> None:
    if any(value is not None and value < 1 for value in at_least_1):
        raise ValueError("block_tokens, held_rows, output_tokens and limit must be at least 1")
    if any(value is not None and not value >= 0.0 for value in at_least_0):
        raise ValueError("slot_s, window_s and since_s must be at least 0")
    if not is_other_fine:
        raise ValueError("speedup must be above 0, and until_s greater than since_s")


def _named(name: str) -> Format:
    for known in _ALL:
        if known.name == name:
            return known
    raise ValueError(f"unknown trace format {name!r}; allowed: {', '.join(FORMATS)}")


def _detected(path: str) -> Format:
    lines = Lines(path)
    with closing(lines):
        first, number, seen = b"", 0, 0
        for line in lines:
            if is_event(line):
                number = number or lines.number
                continue
            if not first:
                first, number = line, lines.number
            for known in _ALL if line is first else (HEDGEROW,):  # A log may begin inside a line.
                if known.matches(line):
                    return known
            seen += 1
            if seen == _LOOKED_AT:
                break
        if not first:
            raise lines.error("only events of the router" if number else "empty file")
        formats = "; ".join(f"{known.name}: {known.description}" for known in _ALL)
        begins = excerpt(first[:64])
        problem = f"unknown format. Known are {formats}. The first line is {begins}"
        raise TraceError(path, number, problem)


def _completed(path: str, known: Format, options: ReadOptions) -> ReadOptions:
    """Measure the options that were not given in the first rows of the file."""
    lines = Lines(path)
    with closing(lines):
        if known.prepare is not None:
            options = known.prepare(lines, options)
        if not options.block_tokens:
            options = replace(options, block_tokens=known.block_tokens)
        if known.sorts:
            return options
        times: list[float] = []
        for arrival in islice(known.read(lines, options), HEAD_ROWS):
            times.append(arrival.at)
            if lines.position()[0] > HEAD_BYTES:
                break
        if options.slot_s is None:
            is_rough = (
                known.grid_s > 0.0 and bool(times) and is_on_grid(sorted(times), known.grid_s)
            )
            options = replace(options, slot_s=known.grid_s if is_rough else 0.0)
        return options
