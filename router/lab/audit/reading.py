"""Reads one or several logs once: yields the stays of requests at replicas, and reports progress.

Stays are in the order of their starts. Several logs are those of several routers in front of one
fleet, or the parts of a rotated log. Must never hold more rows of each log than `residency.InOrder`
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from typing import Final

from router.lab.audit.residency import InOrder, Stay
from router.lab.audit.rows import Row, rows
from router.lab.simulator.traffic import TraceError
from router.lab.traces.format import INCOMPLETE
from router.lab.traces.lines import Lines

Progress = Callable[[float], None]  # called with the share of the log that was read, 0 to 1

_TELL_EVERY: Final = 1024  # rows between two calls of `Progress`


class Reading:
    """One pass over the logs. Use it as a context manager, and iterate over `stays` once.

    Raises OSError for an unreadable file.
    """

    def __init__(self, paths: Sequence[str], on_progress: Progress | None = None) -> None:
        self._on_progress = on_progress
        self._orders: list[InOrder] = []
        with ExitStack() as opened:
            self._files = [Lines(path) for path in paths]
            for lines in self._files:
                opened.callback(lines.close)
            self._opened = opened.pop_all()

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def stays(
        self, of: Callable[[Iterable[Row]], Iterator[Stay]], longest_s: float | None = None
    ) -> Iterator[Stay]:
        """Yield the stays that `of` makes from each file's rows.

        `longest_s`: the duration of the longest stay in seconds; None: not known.
        """
        self._orders = [InOrder(of(self._rows(lines)), longest_s) for lines in self._files]
        if len(self._orders) == 1:
            return iter(self._orders[0])
        return merge(*self._orders, key=_start)

    @property
    def late(self) -> int:
        """Number of stays that came too late to be sorted by their starts."""
        return sum(order.late for order in self._orders)

    @property
    def incomplete(self) -> int:
        """Number of incomplete lines, which were skipped."""
        return sum(lines.notes.get(INCOMPLETE, 0) for lines in self._files)

    def error(self, problem: str) -> TraceError:
        """An error that names the line that was read last, and its file."""
        return self._files[-1].error(problem)

    def _rows(self, lines: Lines) -> Iterator[Row]:
        tell = self._on_progress
        for number, row in enumerate(rows(lines)):
            if tell is not None and number % _TELL_EVERY == 0:
                places = [file.position() for file in self._files]
                tell(sum(read for read, _ in places) / max(sum(size for _, size in places), 1))
            yield row


def _start(stay: Stay) -> float:
    return stay.start
