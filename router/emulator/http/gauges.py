"""An engine's gauges as shown by its metrics page: with a delay.

vLLM 0.32's gauges lag by 0.5 to 1 s (measured). Counters are not delayed here.

Must never keep more than the states within one lag, and one state before them.
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
    """The engine's states by the time at which each state began. Times are seconds, and never go
    back.
    """

    def __init__(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._states: deque[tuple[float, Gauges]] = deque()

    def note(self, state: Gauges, now: float) -> None:
        """The engine is in this state from now on."""
        states = self._states
        if not states or states[-1][1] != state:
            states.append((now, state))
        self._forget(now)

    def read(self, state: Gauges, now: float) -> Gauges:
        """The values for the metrics page; `state`: the engine's present state."""
        self.note(state, now)
        begun, shown = self._states[0]
        return shown if begun <= now - self._lag_s else Gauges(0, 0, 0.0)

    def _forget(self, now: float) -> None:
        states = self._states
        while len(states) > 1 and states[1][0] <= now - self._lag_s:
            states.popleft()
