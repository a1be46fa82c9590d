"""Delays the gauges that an engine shows on its metrics page.

The gauges of vLLM 0.32 show the state of 0.5 to 1 s ago (measured). Counters are not delayed. This
module must keep no states older than the delay, except the newest of them.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Gauges(NamedTuple):
    """The state of one engine at one moment."""

    running: int
    waiting: int
    kv_usage: float


class LaggingGauges:
    """The recent states of an engine, with the time in seconds at which each began.

    Time must never go back.
    """

    def __init__(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._states: deque[tuple[float, Gauges]] = deque()

    def note(self, state: Gauges, now: float) -> None:
        """Record that the engine is in `state` from `now` on."""
        states = self._states
        if not states or states[-1][1] != state:
            states.append((now, state))
        self._forget(now)

    def read(self, state: Gauges, now: float) -> Gauges:
        """The values for the metrics page. `state` is the engine's present state."""
        self.note(state, now)
        begun, shown = self._states[0]
        return shown if begun <= now - self._lag_s else Gauges(0, 0, 0.0)

    def _forget(self, now: float) -> None:
        states = self._states
        while len(states) > 1 and states[1][0] <= now - self._lag_s:
            states.popleft()
