"""Shows the progress of a run: one line on standard error that is overwritten at each update.

The line is shown on a terminal only, unless it is forced, and updated at most four times per
second.

Must never: change a run, or write to a file or a pipe unless it is forced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Final, TextIO

from router.lab.simulator.traffic import HasProgress

EVERY_S: Final = 0.25  # seconds between two updates of the line
CLOCK_EVERY: Final = 256  # requests between two reads of the real clock, which are expensive


class ProgressLine:
    """The `progress` callback of `simulate`. Close it after the run."""

    def __init__(
        self,
        label: str,
        source: object = None,
        *,
        forced: bool = False,
        out: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`source`: the traffic.

        If the traffic is a `HasProgress`, the line shows the share that was read and the remaining
        time.
        """
        self._out = sys.stderr if out is None else out
        self._is_shown = forced or self._out.isatty()
        self._label = label
        self._source = source if isinstance(source, HasProgress) else None
        self._clock = clock
        self._began = clock()
        self._due = self._began + EVERY_S
        self._width = 0

    def __call__(self, now: float, arrived: int, ended: int) -> None:
        if not self._is_shown or arrived % CLOCK_EVERY:
            return
        wall = self._clock()
        if wall >= self._due:
            self._due = wall + EVERY_S
            self._write(self._text(now, arrived, ended, wall - self._began))

    def close(self) -> None:
        """Erase the progress line."""
        if self._width:
            self._write("")
            self._width = 0

    def _text(self, now: float, arrived: int, ended: int, wall_s: float) -> str:
        rate = arrived / wall_s if wall_s > 0.0 else 0.0
        text = f"{self._label}: {_time(now)} simulated, {ended:,} requests, {rate:,.0f}/s"
        share = self._source.share() if self._source is not None else 0.0
        if share > 0.0:
            left_s = wall_s * (1.0 - share) / share
            text += f", {share:.0%}, {_time(left_s)} left"
        return text

    def _write(self, text: str) -> None:
        text = text[:200]
        try:
            self._out.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
            self._out.flush()
        except (OSError, ValueError):  # the stream is closed: continue without progress
            self._is_shown = False
        self._width = len(text)


def _time(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02} h"
