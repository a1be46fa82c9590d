"""Replays a log in a closed loop: a session's next request arrives after the previous one has
ended.

`sessions` finds the earlier answer that a request followed in the log. The think time is the time
from the end of that answer to the arrival of the request. In a closed loop the request arrives the
same think time after the simulated end of that answer. This is also done if the simulated answer
failed, because the session continued in the log. Requests that follow no answer arrive at their
logged times.

If simulated answers end earlier than in the log, the next requests of their sessions are due before
their logged times. Therefore the log is read ahead: by `ahead_s` seconds, at most `held_rows` rows
and `held_blocks` blocks. Because of these limits, two kinds of requests arrive at a different time:

- A request that has not been read when it is due arrives as soon as it is read.
- If `held_rows` or `held_blocks` is reached and the next row of the log is due, the oldest waiting
  request arrives before the answer that it follows, but not before its logged time. `notes` counts
  these requests.

The source of the traffic must create new `Arrival` objects in each pass, as `Trace` does, because
their times are changed. Must never: lose an arrival, go back in time, or hold more than the limits
allow.

`Turn`, `Sessions`: finds, for each request of a log, the earlier request of the same session that
it followed.

A request follows the latest answer of its session that had ended when the request arrived, because
the user or agent had read that answer. Requests of one session may overlap, for example parallel
calls of an agent; these all follow the same earlier answer. A request that arrived before any
answer of its session had ended follows no request.

Requests are entered in order of their arrival in the log. Must never: decide when a request is
sent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final

from router.lab.simulator.arrival import Arrival
from router.lab.simulator.traffic import HasProgress, Traffic

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


# Seconds. Enough for ten successive answers to an agent that each end half a minute earlier than in
# the log.
AHEAD_S: Final = 300.0
HELD_ROWS: Final = 100_000
HELD_BLOCKS: Final = 4_000_000  # maximum number of blocks of all held requests; they need 160 MB
# Maximum number of remembered sessions without a running request; they need 30 MB.
SESSIONS: Final = 100_000
FULL: Final = "arrived before the previous answer: the read-ahead is full"


class ClosedLoop:
    """Traffic in a closed loop. Every iteration reads the source from its beginning."""

    def __init__(
        self,
        traffic: Traffic,
        *,
        speedup: float = 1.0,
        ahead_s: float = AHEAD_S,
        held_rows: int = HELD_ROWS,
        held_blocks: int = HELD_BLOCKS,
        sessions: int = SESSIONS,
    ) -> None:
        """`speedup`: the speedup of `traffic`; think times are divided by it. Raises ValueError."""
        if not (speedup > 0.0 and ahead_s >= 0.0):
            raise ValueError("speedup must be above 0, and ahead_s 0 or more seconds")
        if min(held_rows, held_blocks, sessions) < 1:
            raise ValueError("held_rows, held_blocks and sessions must be 1 or more")
        self.name = traffic.name
        self.block_tokens = traffic.block_tokens
        self._traffic = traffic
        self._speedup = speedup
        self._ahead_s = ahead_s
        self._held_rows = held_rows
        self._held_blocks = held_blocks
        self._most_sessions = sessions
        self._begin()

    def _begin(self) -> None:
        self._sessions = Sessions(self._most_sessions)
        # Requests with a known arrival time: a heap of (time, number, request).
        self._ready: list[tuple[float, int, Arrival]] = []
        # Maps the number of a waiting request to the request that it follows.
        self._waiting: OrderedDict[int, Turn] = OrderedDict()
        self._blocks = 0  # the number of blocks of all held requests
        self._last = 0.0  # the time of the latest arrival
        self._forced = 0

    @property
    def held(self) -> int:
        """The number of requests that were read and have not arrived yet."""
        return len(self._ready) + len(self._waiting)

    def share(self) -> float:
        return self._traffic.share() if isinstance(self._traffic, HasProgress) else 0.0

    def notes(self) -> dict[str, int]:
        """The number of requests of the latest pass that arrived before the answer that they
        follow.
        """
        return {FULL: self._forced} if self._forced else {}

    # -- methods that the simulation calls ------------------------------------------------------

    def __iter__(self) -> Iterator[Arrival]:
        """Yield requests in order of their arrival times.

        `follow` and `follow_failed` return the requests that wait for an answer.
        """
        self._begin()
        ready = self._ready
        source = iter(self._traffic)
        row = next(source, None)
        while True:
            while row is not None:
                due = ready[0][0] if ready else inf
                if row.at > due + self._ahead_s:
                    break
                if self._is_full():
                    if row.at <= due:
                        self._make_room(row.at)
                    break
                self._read(row)
                row = next(source, None)
            if not ready:
                return
            at, _, arrival = heappop(ready)
            self._blocks -= len(arrival.blocks)
            arrival.at = self._last = at
            yield arrival

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """Return the requests that waited for this answer, and those that the source adds."""
        return [*self._followers(ended, now), *self._traffic.follow(ended, now)]

    def follow_failed(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """Return the requests that waited for this request, which failed."""
        return self._followers(ended, now)

    def _followers(self, ended: Arrival, now: float) -> list[Arrival]:
        turn = self._sessions.end(ended.number, now)
        if turn is None:
            return []
        found = list(turn.waiting.values())
        turn.waiting.clear()
        for arrival in found:
            del self._waiting[arrival.number]
            self._blocks -= len(arrival.blocks)
            arrival.at = now + (arrival.at - turn.logged_end)
        return found

    # -- reading ahead ------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return self.held >= self._held_rows or self._blocks >= self._held_blocks

    def _read(self, arrival: Arrival) -> None:
        """Hold a request until it arrives."""
        self._blocks += len(arrival.blocks)
        at, previous = arrival.at, None
        if arrival.session and arrival.logged is not None:
            ended_s = arrival.logged.ended_s / self._speedup
            previous = self._sessions.enter(arrival, arrival.at + ended_s)
        if previous is not None:
            if previous.ended_at < 0.0:
                previous.waiting[arrival.number] = arrival
                self._waiting[arrival.number] = previous
                return
            at = max(self._last, previous.ended_at + (at - previous.logged_end))
        heappush(self._ready, (at, arrival.number, arrival))

    def _make_room(self, due: float) -> None:
        """Let the oldest held request arrive by `due`, even if the answer that it follows has not
        ended.
        """
        self._forced += 1
        if self._waiting:
            number, previous = self._waiting.popitem(last=False)
            arrival = previous.waiting.pop(number)
            at = max(self._last, arrival.at)
        else:
            _, number, arrival = heappop(self._ready)
            at = max(self._last, due)
        heappush(self._ready, (at, number, arrival))
