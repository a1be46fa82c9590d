"""Logs the events of replicas: down, up, ejected, suspect, and others.

A change of a replica's state is never suppressed while the replica has at most `LINES_MAX` lines in
a window of `WINDOW_S` seconds. Further lines of the replica are counted instead, and at the end of
the window one line has its state at that time. So the last line of each replica is always true, and
a replica that flaps causes at most `LINES_MAX + 1` lines per window.

Must never: keep a replica that has left the fleet, or hold an event longer than one window.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from router.core.clock import monotonic
from router.fleet.replica import Replica
from router.observe.events import log_event

LINES_MAX: Final = 10  # maximum number of lines of one replica in a window
WINDOW_S: Final = 60.0  # the length of a window in seconds; it begins with a line

# Events that need no action: their level is info. All others are warnings.
_RECOVERIES: Final = frozenset({"up", "half_open", "recovered", "awake"})


class FleetLog:
    """The log lines of one fleet. Call `close` at the end."""

    def __init__(
        self,
        replicas: Mapping[str, Replica],
        loop: asyncio.AbstractEventLoop,
        window_s: float = WINDOW_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`replicas`: the fleet's own dict by ID, which changes over time."""
        self._replicas = replicas
        self._loop = loop
        self._window_s = window_s
        self._clock = clock
        # The number of events of each replica in the present window, by ID.
        self._events: dict[str, int] = {}
        self._end: asyncio.TimerHandle | None = None  # The end of the present window.

    def happened(self, what: str, replica: Replica) -> None:
        """Logs an event of a replica, with its reason. `what`: the rest of the message."""
        count = self._events[replica.id] = self._events.get(replica.id, 0) + 1
        if self._end is None:
            self._end = self._loop.call_later(self._window_s, self.close)
        if count <= LINES_MAX:
            health = replica.health
            of_requests = what in ("ejected", "suspect")
            why = health.why if of_requests else replica.why(self._clock())
            level = logging.INFO if what in _RECOVERIES else logging.WARNING
            _log(f"replica {what}", replica, why, level)

    def fleet_changed(self, ids: Collection[str]) -> None:
        """Forgets replicas that have left. `ids`: the IDs of all replicas of the fleet."""
        for replica_id in [name for name in self._events if name not in ids]:
            del self._events[replica_id]

    def close(self) -> None:
        """Ends the present window: logs the state of each replica that had too many events."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        events, self._events = self._events, {}
        now = self._clock()
        for replica_id, count in events.items():
            replica = self._replicas.get(replica_id)
            if count > LINES_MAX and replica is not None:
                state = replica.state(now)
                _log(f"replica {state}", replica, replica.why(now), kept_back=count - LINES_MAX)


def _log(
    message: str, replica: Replica, why: str, level: int = logging.WARNING, **fields: object
) -> None:
    if why:
        fields = {"why": why, **fields}
    log_event(level, message, key=None, replica=replica.id, **fields)
