"""A request's stay at the replica that answered it: when it got there, waited, decoded and left.

The log says when a request arrived, when its first token came and when it ended; the answering
attempt's own time says when it was sent to the replica. In what comes before the first token,
waiting and prefill are not told apart by any log. But an engine prefills a prompt in one go once it
begins, and the first token ends it. So the prefill is taken to be the last part of that time, as
long as such a prompt takes on an idle replica (`Alone`), and what is before it is the wait.

Only streams show when their first token came. Of other answers it is reckoned back from their end,
at the fleet's usual pace of decoding.

Times are seconds since 1970. Must never: hold more stays than `STAYS_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from sys import intern
from typing import Final

from router.audit.rows import Row
from router.core.errors import Reason
from router.fleet.prefix.index import TokenRatio
from router.intake.prompt import GENERATES

STAYS_MAX: Final = 500_000  # held while the log is brought into order: about 200 MB
SLACK_S: Final = 5.0  # lines are written in batches, and clocks are set


class Stay:
    """One request at one replica. `start` <= `prefill` <= `first` <= `end`."""

    __slots__ = (
        "alone",
        "cached",
        "counted",
        "end",
        "first",
        "mark",
        "model",
        "ok",
        "output",
        "party",
        "prefill",
        "prompt",
        "replica",
        "start",
        "streamed",
        "waited",
    )

    def __init__(self, row: Row, replica: str, start: float, party: int) -> None:
        self.party = party  # a number: who sent it
        self.replica = intern(replica)
        self.model = intern(row.model or "")
        self.waited = start - row.ts  # in the router, other attempts included
        self.start = start  # sent to this replica
        self.end = row.ended
        # Whether its first token was seen.
        self.streamed = row.stream and row.ttft_ms is not None and row.kind in GENERATES
        self.first = self.end
        if self.streamed and row.ttft_ms is not None:
            self.first = min(max(row.ts + row.ttft_ms * 1e-3, start), self.end)
        self.prefill = self.first  # its prefill began; see `place`
        self.alone = 0.0  # seconds from start to first token, had nobody else been there
        self.prompt = prompt_tokens(row)
        self.cached = min(row.cached_tokens or 0, self.prompt)
        # Whether the engine told both.
        self.counted = row.prompt_tokens is not None and row.cached_tokens is not None
        self.ok = row.reason == Reason.OK
        self.output = row.output_tokens  # None: nobody counted
        self.mark: object = None  # of whoever goes through the stays

    def place(self, alone_s: float, pace_s: float) -> None:
        """Put its prefill, which takes `alone_s` on an idle replica, before its first token.

        Where that was not seen, it came so long before the end as the other tokens need at the
        fleet's pace of `pace_s` seconds each.
        """
        if not self.streamed:
            decode = pace_s * max((self.output or 0) - 1, 0)
            self.first = min(max(self.start + alone_s, self.end - decode), self.end)
        self.prefill = max(self.first - alone_s, self.start)
        self.alone = alone_s

    @property
    def uncached(self) -> int:
        return self.prompt - self.cached

    @property
    def ttft(self) -> float:
        """From its arrival at the router; only of a stream."""
        return self.waited + self.first - self.start


def stay_of(row: Row, party: int = 0) -> Stay | None:
    """The stay a row tells of; None: no replica answered it."""
    if not row.replica:
        return None
    start = row.ts
    for replica, _, _, ms in reversed(row.attempts):
        if replica == row.replica:
            start = max(start, row.ended - ms * 1e-3)
            break
    return Stay(row, row.replica, start, party)


def prompt_tokens(row: Row) -> int:
    """As the engine counted, or the router estimated, or by the size of the body."""
    return row.prompt_tokens or row.estimated_tokens or int(row.bytes_in / TokenRatio.DEFAULT)


class InOrder:
    """Stays in the order of their starts, from the order of their ends. Iterate it once.

    A stay can be let go when no line still to come can have started before it: once the log is
    older than it by the longest stay, which is `longest_s` or, where that is not known yet, the
    longest so far. What comes later than that all the same is counted in `late` and handed on.
    """

    def __init__(
        self, stays: Iterable[Stay], longest_s: float | None = None, most: int = STAYS_MAX
    ) -> None:
        self.late = 0
        self.longest_s = longest_s or 0.0
        self._learns = longest_s is None
        self._stays = stays
        self._most = most

    def __iter__(self) -> Iterator[Stay]:
        held: list[tuple[float, int, Stay]] = []
        latest = gone = -inf
        for number, stay in enumerate(self._stays):
            if self._learns and stay.end - stay.start > self.longest_s:
                self.longest_s = stay.end - stay.start
            if stay.end > latest:
                latest = stay.end
            if stay.start < gone:
                self.late += 1
            heappush(held, (stay.start, number, stay))
            due = latest - self.longest_s - SLACK_S
            while held and (held[0][0] < due or len(held) > self._most):
                start, _, stay = heappop(held)
                gone = max(gone, start)
                yield stay
        while held:
            yield heappop(held)[2]
