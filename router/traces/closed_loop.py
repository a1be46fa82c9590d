"""A log as closed-loop traffic: the next request of a session comes when the one before has ended.

In the log a request came some time after the answer that it follows (`sessions`): its think time.
In a closed loop it comes as long after the simulated end of that answer, whether the answer failed
or not, because the session went on in the log. All other requests come at their own time.

A faster fleet gets a session's requests earlier than the log has them, so the log is read ahead of
what comes next: `ahead_s` seconds, at most `held_rows` rows and `held_blocks` blocks. This has two
consequences:

- A request whose turn comes before it was read comes as soon as it is read.
- When the read-ahead is full and the next row is due, the first request that waits comes before its
  turn, but not before its own time. `notes` counts these requests.

The source must make its arrivals anew in each pass, as `Trace` does: their times are changed here.
Must never: lose an arrival, go back in time, or hold more than these limits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final

from router.simulator.arrival import Arrival
from router.simulator.traffic import HasProgress, Traffic
from router.traces.sessions import Sessions, Turn

AHEAD_S: Final = 300.0  # an agent's ten turns, each half a minute faster
HELD_ROWS: Final = 100_000
HELD_BLOCKS: Final = 4_000_000  # 160 MB
SESSIONS: Final = 100_000  # ended ones that are remembered; 30 MB
FULL: Final = "came before its turn: too many requests of sessions wait"


class ClosedLoop:
    """Traffic in a closed loop. Every iteration is a new pass."""

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
        """`speedup`: that of the traffic, which shortens the think times. Raises ValueError."""
        if not (speedup > 0.0 and ahead_s >= 0.0):
            raise ValueError("speedup is above 0, ahead_s is 0 or more seconds")
        if min(held_rows, held_blocks, sessions) < 1:
            raise ValueError("held_rows, held_blocks and sessions are 1 or more")
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
        self._ready: list[tuple[float, int, Arrival]] = []  # by time and number
        self._waiting: OrderedDict[int, Turn] = OrderedDict()  # by number: what it waits for
        self._blocks = 0  # of both
        self._last = 0.0  # when the last one came
        self._forced = 0

    @property
    def held(self) -> int:
        """Requests that were read and have not come."""
        return len(self._ready) + len(self._waiting)

    def share(self) -> float:
        return self._traffic.share() if isinstance(self._traffic, HasProgress) else 0.0

    def notes(self) -> dict[str, int]:
        """How many requests came before their turn, in the latest pass."""
        return {FULL: self._forced} if self._forced else {}

    # -- what the simulation asks -------------------------------------------------------------

    def __iter__(self) -> Iterator[Arrival]:
        """Arrivals by time. The others come through `follow` and `follow_failed`."""
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
        """The requests that follow an answer, and those of the traffic itself."""
        return [*self._followers(ended, now), *self._traffic.follow(ended, now)]

    def follow_failed(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """The requests that follow a request without an answer."""
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
        """Hold a row until it comes."""
        self._blocks += len(arrival.blocks)
        at, before = arrival.at, None
        if arrival.session and arrival.logged is not None:
            ended_s = arrival.logged.ended_s / self._speedup
            before = self._sessions.enter(arrival, arrival.at + ended_s)
        if before is not None:
            if before.ended_at < 0.0:
                before.waiting[arrival.number] = arrival
                self._waiting[arrival.number] = before
                return
            at = max(self._last, before.ended_at + (at - before.logged_end))
        heappush(self._ready, (at, arrival.number, arrival))

    def _make_room(self, due: float) -> None:
        """Let the request that was read first come by `due`, without its turn."""
        self._forced += 1
        if self._waiting:
            number, before = self._waiting.popitem(last=False)
            arrival = before.waiting.pop(number)
            at = max(self._last, arrival.at)
        else:
            _, number, arrival = heappop(self._ready)
            at = max(self._last, due)
        heappush(self._ready, (at, number, arrival))
