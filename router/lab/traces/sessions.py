"""Finds, for each request of a log, the earlier request of the same session that it followed.

A request follows the latest answer of its session that had ended when the request arrived, because
the user or agent had read that answer. Requests of one session may overlap, for example parallel
calls of an agent; these all follow the same earlier answer. A request that arrived before any
answer of its session had ended follows no request.

Requests are entered in order of their arrival in the log. Must never: decide when a request is
sent.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush

from router.lab.simulator.arrival import Arrival

_Key = tuple[str, str]  # tenant and session


class Turn:
    """One request of a session. Times are seconds of the traffic's clock."""

    __slots__ = ("ended_at", "key", "logged_end", "waiting")

    def __init__(self, key: _Key, logged_end: float) -> None:
        self.key = key
        self.logged_end = logged_end  # when the request ended in the log
        self.ended_at = -1.0  # when the request ended in the simulation; below 0: it has not ended
        self.waiting: dict[int, Arrival] = {}  # requests that follow this request, by number


class _Session:
    __slots__ = ("latest", "running", "unfinished")

    def __init__(self) -> None:
        # The answered request that had ended latest in the log when the newest request arrived.
        self.latest: Turn | None = None
        # Requests that were still running in the log when the newest request arrived: a heap by
        # logged end, then by number.
        self.running: list[tuple[float, int, Turn]] = []
        self.unfinished = 0  # requests that have not ended in the simulation


class Sessions:
    """The sessions of one pass over a log.

    All sessions with unfinished requests are kept, and the latest `most` sessions without
    unfinished requests. The next request of a session that was not kept follows no request.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[_Key, _Session] = {}
        # Sessions whose requests have all ended, the oldest first.
        self._idle: OrderedDict[_Key, None] = OrderedDict()
        # Requests that have not ended in the simulation, by number.
        self._unfinished: dict[int, Turn] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, arrival: Arrival, logged_end: float) -> Turn | None:
        """Enter a request of a session. Returns the request that it follows, or `None`.

        `logged_end`: when the entered request ended in the log.
        """
        key = (arrival.tenant, arrival.session or "")
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session()
        self._idle.pop(key, None)
        session.unfinished += 1
        running = session.running
        while running and running[0][0] <= arrival.at:
            session.latest = heappop(running)[2]
        turn = self._unfinished[arrival.number] = Turn(key, logged_end)
        heappush(running, (logged_end, arrival.number, turn))
        return session.latest

    def end(self, number: int, now: float) -> Turn | None:
        """Record that a request has ended in the simulation. Returns its entry.

        Returns `None` for a request that belongs to no session.
        """
        turn = self._unfinished.pop(number, None)
        if turn is None:
            return None
        turn.ended_at = now
        session = self._sessions[turn.key]
        session.unfinished -= 1
        if not session.unfinished:
            self._idle[turn.key] = None
            if len(self._idle) > self._most:
                oldest, _ = self._idle.popitem(last=False)
                del self._sessions[oldest]
        return turn
