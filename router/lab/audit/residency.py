"""A request's stay at the replica that answered it: its arrival, wait, prefill, decoding and end.

The log has the times of arrival, first token and end, and the duration of the answering attempt.
This duration gives the time of dispatch to the replica. No log separates waiting from prefill
before the first token. But an engine prefills a prompt in one go once it has begun, and the first
token ends the prefill. So the prefill is assumed to be directly before the first token. Its assumed
duration is the time that such a prompt takes on an idle replica (`Alone`). The time from dispatch
to the begin of the prefill is the wait.

Only streams show the time of their first token. For other answers the time of the first token is
computed back from their end, with the fleet's usual time per token.

Times are seconds since 1970. Must never hold more stays than `STAYS_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from sys import intern
from typing import Final

from router.core.errors import Reason
from router.fleet.prefix.token_ratio import TokenRatio
from router.intake.prompt import GENERATES
from router.lab.audit.rows import Row

STAYS_MAX: Final = 500_000  # maximum number of stays held while the log is sorted: about 200 MB
SLACK_S: Final = 5.0  # seconds of tolerance for lines written in batches, and for clock adjustments


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
        self.party = party  # number of the party that sent the request
        self.replica = intern(replica)
        self.model = intern(row.model or "")
        # Seconds in the router before the dispatch, including other attempts.
        self.waited = start - row.ts
        self.start = start  # when the request was sent to this replica
        self.end = row.ended
        # Whether the time of the first token is known.
        self.streamed = row.stream and row.ttft_ms is not None and row.kind in GENERATES
        self.first = self.end
        if self.streamed and row.ttft_ms is not None:
            self.first = min(max(row.ts + row.ttft_ms * 1e-3, start), self.end)
        self.prefill = self.first  # begin of the prefill; see `place`
        self.alone = 0.0  # seconds from start to first token on an idle replica
        self.prompt = prompt_tokens(row)
        self.cached = min(row.cached_tokens or 0, self.prompt)
        # Whether the engine reported prompt tokens and cached tokens.
        self.counted = row.prompt_tokens is not None and row.cached_tokens is not None
        self.ok = row.reason == Reason.OK
        self.output = row.output_tokens  # number of output tokens; None: not counted
        self.mark: object = None  # a value that the code that iterates over the stays may set

    def place(self, alone_s: float, pace_s: float) -> None:
        """Place the prefill, which takes `alone_s` on an idle replica, directly before the first
        token.

        If the time of the first token is unknown, it is computed from the end, with `pace_s`
        seconds per further token: the fleet's usual time.
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
        """Seconds from arrival at the router to the first token; only for a stream."""
        return self.waited + self.first - self.start


def stay_of(row: Row, party: int = 0) -> Stay | None:
    """Return the stay of a row, or None if no replica answered the request."""
    if not row.replica:
        return None
    start = row.ts
    for replica, _, _, ms in reversed(row.attempts):
        if replica == row.replica:
            start = max(start, row.ended - ms * 1e-3)
            break
    return Stay(row, row.replica, start, party)


def prompt_tokens(row: Row) -> int:
    """Return the number of prompt tokens, estimated if the engine did not report it.

    The value is the engine's count, else the router's estimate, else derived from the body's size.
    """
    return row.prompt_tokens or row.estimated_tokens or int(row.bytes_in / TokenRatio.DEFAULT)


class InOrder:
    """Sorts requests' stays at replicas by start; the input is sorted by end. Iterate it once.

    A stay is yielded when no stay of a later line can have started before it. This is so when the
    latest end so far is later than its start by more than the longest stay. The longest stay is
    `longest_s`, or the longest so far if `longest_s` is not given. A stay that comes too late to be
    sorted is counted in `late`, and yielded nevertheless.
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
