"""Which earlier request of its session a request followed in the log.

It is the one that ended last of those that had ended when the request arrived: a user, or an agent,
has read that answer. Requests of one session may overlap, for example the calls that an agent sends
at once; these all follow the answer before them. A request that came before any answer of its
session follows none.

Requests are entered in the order of their arrival in the log. Must never: decide when one is sent.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush

from router.simulator.arrival import Arrival

_Key = tuple[str, str]  # tenant and session


class Turn:
    """One request of a session. Times are seconds of the traffic's clock."""

    __slots__ = ("ended_at", "key", "logged_end", "waiting")

    def __init__(self, key: _Key, logged_end: float) -> None:
        self.key = key
        self.logged_end = logged_end  # when it ended in the log
        self.ended_at = -1.0  # when it ended in the simulation; below 0: it has not
        self.waiting: dict[int, Arrival] = {}  # requests that follow it, by number


class _Session:
    __slots__ = ("before", "open", "running")

    def __init__(self) -> None:
        # Of the requests that had ended in the log by the last arrival, the one that ended last.
        self.before: Turn | None = None
        # The others, by their logged end. The number decides between equal ends.
        self.running: list[tuple[float, int, Turn]] = []
        self.open = 0  # requests that have not ended in the simulation


class Sessions:
    """The sessions of one pass over a traffic.

    A session is forgotten when all its requests have ended and `most` others have ended later; its
    next request then follows none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[_Key, _Session] = {}
        self._idle: OrderedDict[_Key, None] = OrderedDict()  # all ended; the longest ago first
        self._open: dict[int, Turn] = {}  # not ended in the simulation, by number

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, arrival: Arrival, logged_end: float) -> Turn | None:
        """Enter a request of a session. Returns the one that it follows; `None`: it follows none.

        `logged_end`: when it ended in the log.
        """
        key = (arrival.tenant, arrival.session or "")
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session()
        self._idle.pop(key, None)
        session.open += 1
        running = session.running
        while running and running[0][0] <= arrival.at:
            session.before = heappop(running)[2]
        turn = self._open[arrival.number] = Turn(key, logged_end)
        heappush(running, (logged_end, arrival.number, turn))
        return session.before

    def end(self, number: int, now: float) -> Turn | None:
        """Note that a request has ended in the simulation. `None`: it belongs to no session."""
        turn = self._open.pop(number, None)
        if turn is None:
            return None
        turn.ended_at = now
        session = self._sessions[turn.key]
        session.open -= 1
        if not session.open:
            self._idle[turn.key] = None
            if len(self._idle) > self._most:
                oldest, _ = self._idle.popitem(last=False)
                del self._sessions[oldest]
        return turn
