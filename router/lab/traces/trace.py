"""Reads an access log as `Traffic`, lazily, once per pass.

A pass yields arrivals in order of time with consecutive numbers. Time 0 is the first arrival of the
file. Each pass opens the file again and yields exactly the same arrivals.
Must never: hold more than the current line and the rows that the reader holds for sorting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from math import inf
from os import PathLike, fspath, stat
from pathlib import PurePath
from stat import S_ISREG
from typing import Final

from router.lab.simulator.traffic import Arrival, TraceError
from router.lab.traces.format import is_event
from router.lab.traces.hedgerow import matches, measured, read
from router.lab.traces.lines import Lines, excerpt

# A log may begin inside a line: among so many lines a whole line is looked for.
_LOOKED_AT: Final = 8


class Trace:
    """The traffic of one access log, gzip or plain.

    - `block_tokens`: tokens per block of the file; None: measured.
    - `model`: read only the requests of this model.
    - `limit`: the maximum number of requests.
    - `until_s`: read only this part, in seconds after the first request.
    - `speedup`: arrival times are divided by this.

    The first rows of the file are read at once. Raises TraceError, OSError, and ValueError for an
    option that is out of range.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        block_tokens: int | None = None,
        model: str | None = None,
        limit: int | None = None,
        until_s: float | None = None,
        speedup: float = 1.0,
    ) -> None:
        if any(value is not None and value < 1 for value in (block_tokens, limit)):
            raise ValueError("block_tokens and limit must be at least 1")
        if not speedup > 0.0 or (until_s is not None and not until_s > 0.0):
            raise ValueError("speedup and until_s must be above 0")
        self.path = fspath(path)
        self.name = PurePath(self.path).name
        self._limit = limit
        self._speedup = speedup
        self._until_s = inf if until_s is None else until_s
        self._model = model
        self._lines: Lines | None = None  # the lines of the latest pass
        # The time on the file's own clock, in s, that is time 0 of the latest pass.
        self.zero_s = 0.0
        if not S_ISREG(stat(self.path).st_mode):
            problem = "not a regular file; the file must be readable more than once"
            raise TraceError(self.path, 1, problem)
        _check_kind(self.path)
        with closing(Lines(self.path)) as lines:
            measured_tokens, self._usual_output = measured(lines)
        self.block_tokens = block_tokens or measured_tokens

    def __iter__(self) -> Iterator[Arrival]:
        """Read the file once and yield its arrivals. Raises TraceError and OSError."""
        lines = self._lines = Lines(self.path)
        with closing(lines):
            yield from self._selected(lines)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """No requests follow an answer, because the times of a trace are fixed."""
        return ()

    def share(self) -> float:
        """The share of the file that the latest pass has read, 0 to 1."""
        if self._lines is None:
            return 0.0
        read_bytes, total = self._lines.position()
        return min(read_bytes / total, 1.0) if total else 1.0

    def notes(self) -> dict[str, int]:
        """Counts of rows that the latest pass skipped or completed by estimates."""
        return {} if self._lines is None else dict(self._lines.notes)

    def _selected(self, lines: Lines) -> Iterator[Arrival]:
        number = 0
        zero: float | None = None
        for arrival in read(lines, self.block_tokens, self._usual_output):
            if zero is None:
                zero = self.zero_s = arrival.at
            after = arrival.at - zero
            if self._model is not None and arrival.model != self._model:
                continue
            if after >= self._until_s:
                break
            arrival.at = after / self._speedup
            arrival.number = number
            number += 1
            yield arrival
            if number == self._limit:
                return
        if not number:
            raise lines.error("no request in the selected time, or none of the selected model")


def _check_kind(path: str) -> None:
    """Raise TraceError for a file that is not an access log."""
    with closing(Lines(path)) as lines:
        first, number, seen = b"", 0, 0
        for line in lines:
            if is_event(line):
                number = number or lines.number
                continue
            if not first:
                first, number = line, lines.number
            if matches(line):
                return
            seen += 1
            if seen == _LOOKED_AT:
                break
        if not first:
            raise lines.error("only events of the router" if number else "empty file")
        problem = (
            "not an access log of Hedgerow, which has JSON lines with ts, id and kind. "
            f"The first line is {excerpt(first[:64])}"
        )
        raise TraceError(path, number, problem)
