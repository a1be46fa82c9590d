"""The round-trip time to one replica: the shortest sample of the last minutes.

A sample is never too short. It is too long if the replica takes time to answer, if a turn of the
event loop is late, or if packets wait in the network. So the shortest sample is nearest to the real
round-trip time (as in BBR and in TCP's `min_rtt`). The samples are the durations of probes, and
each time to first token that is shorter than the present value. A sample is dropped after one to
two windows, because routes change.

Pure. Must never: read a clock.
"""

from __future__ import annotations

from math import inf
from typing import Final

WINDOW_S: Final = 300.0


class RoundTrip:
    """The round-trip time of one replica. Times are monotonic seconds."""

    __slots__ = ("_best_s", "_last_best_s", "_window_at")

    def __init__(self) -> None:
        self._best_s = inf  # The shortest sample of this window.
        self._last_best_s = inf  # The shortest sample of the previous window.
        self._window_at = -1.0  # The beginning of this window; below 0: there was no sample.

    def add(self, sample_s: float, now: float) -> None:
        """Add a sample. A sample that is not positive and finite is ignored."""
        if not 0.0 < sample_s < inf:
            return
        if self._window_at < 0.0:
            self._window_at = now
        windows = int((now - self._window_at) / WINDOW_S)
        if windows > 0:
            # After a longer pause, the previous window is outdated, too.
            self._last_best_s = self._best_s if windows == 1 else inf
            self._best_s = inf
            self._window_at += windows * WINDOW_S
        if sample_s < self._best_s:
            self._best_s = sample_s

    @property
    def seconds(self) -> float:
        """The round-trip time in seconds; 0: not measured yet."""
        found = min(self._last_best_s, self._best_s)
        return found if found < inf else 0.0
