"""Reads access logs as stays of requests at replicas, and as events in order of time.

`Row`: reads lines of Hedgerow's access log as rows with replica, tokens and times.

Decodes only the fields needed for an audit or a fit; a prompt's blocks are skipped. Incomplete
lines are skipped and counted: a disk was full, or the log is still being written. Events of the
router between the lines are skipped.

Must never hold more than one line, and never accept a line with an invalid value.

`Stay`, `InOrder`: a request's stay at the replica that answered it: its arrival, wait, prefill,
decoding and end.

The log has the times of arrival, first token and end, and the duration of the answering attempt.
This duration gives the time of dispatch to the replica. No log separates waiting from prefill
before the first token. But an engine prefills a prompt in one go once it has begun, and the first
token ends the prefill. So the prefill is assumed to be directly before the first token. Its assumed
duration is the time that such a prompt takes on an idle replica (`Alone`). The time from dispatch
to the begin of the prefill is the wait.

Only streams show the time of their first token. For other answers the time of the first token is
computed back from their end, with the fleet's usual time per token.

Times are seconds since 1970. Must never hold more stays than `STAYS_MAX`.

`sweep`: yields all events at all replicas, in order of time.

The events of a stay are: start (the request is sent to the replica), begin of the prefill, first
token, end. Simultaneous events are in the order of the stays' starts. But an end is before a start,
because a request that ends when another arrives does not delay it.

Must never hold more than the running stays.

`Reading`: reads one or several logs once: yields the stays of requests at replicas, and reports
progress.

Stays are in the order of their starts. Several logs are those of several routers in front of one
fleet, or the parts of a rotated log. Must never hold more rows of each log than `residency.InOrder`
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import heappop, heappush, merge
from math import inf
from sys import intern
from typing import Annotated, Final

import msgspec

from router.core.errors import Reason
from router.core.unreadable import NOT_JSON
from router.fleet.prefix.token_ratio import TokenRatio
from router.intake.prompt import GENERATES
from router.lab.simulator.traffic import TraceError
from router.lab.traces.lines import (
    INCOMPLETE,
    TIME_MAX,
    Lines,
    Milliseconds,
    Tokens,
    bad_json,
    check_incomplete,
    is_event,
)


class Row(msgspec.Struct, gc=False, rename={"priority": "class"}):
    """One request, with the fields of `router.observe.log.record.Record`.

    `ts` and `reason` are in every line: a file without them is not an access log.
    """

    ts: Annotated[float, msgspec.Meta(ge=0.0, le=TIME_MAX)]  # arrival, seconds since 1970
    reason: str
    client: str = ""
    kind: str = ""
    model: str | None = None
    stream: bool = False
    replica: str = ""
    attempts: list[tuple[str, str, str, Milliseconds]] = []  # (replica, kind, reason, duration)
    ttft_ms: Milliseconds | None = None
    duration_ms: Milliseconds = 0.0
    bytes_in: Annotated[int, msgspec.Meta(ge=0)] = 0
    priority: str = ""
    tenant: str = ""
    prompt_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    estimated_tokens: Tokens = 0
    queue_ms: Milliseconds | None = None

    @property
    def ended(self) -> float:
        return self.ts + self.duration_ms * 1e-3


def rows(lines: Lines) -> Iterator[Row]:
    """Yield all rows in the order of the file, which is the order in which the requests ended.

    Raises TraceError.
    """
    decode = msgspec.json.Decoder(Row).decode
    unreadable: TraceError | None = None  # about the first incomplete line
    is_empty = True
    for line in lines:
        try:
            row = decode(line)
        except NOT_JSON as err:
            if not is_event(line):
                check_incomplete(lines, line, err)
                unreadable = unreadable or bad_json(lines, err)
            continue
        if row.kind or not is_event(line):
            is_empty = False
            yield row
    if is_empty and unreadable is not None:
        raise unreadable


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


START: Final = 0
PREFILL: Final = 1
FIRST: Final = 2
END: Final = 3


def sweep(stays: Iterable[Stay]) -> Iterator[tuple[float, int, Stay]]:
    """Yield (time, event, stay) in order of time, from stays in the order of their starts.

    A stay's `prefill` and `first` are read after its START was yielded, so the caller may change
    them when it gets START. If a stay comes too late, its START has the time of the latest event.
    """
    heap: list[tuple[float, int, int, Stay]] = []
    order = 0
    clock = -1.0
    for stay in stays:
        while heap and heap[0][0] <= stay.start:
            clock, _, what, one = heappop(heap)
            yield clock, what, one
        clock = max(clock, stay.start)
        yield clock, START, stay
        for what, at in ((PREFILL, stay.prefill), (FIRST, stay.first), (END, stay.end)):
            heappush(heap, (max(at, clock), order, what, stay))
            order += 1
    while heap:
        clock, _, what, stay = heappop(heap)
        yield clock, what, stay


Progress = Callable[[float], None]  # called with the share of the log that was read, 0 to 1

_TELL_EVERY: Final = 1024  # rows between two calls of `Progress`


class Reading:
    """One pass over the logs. Use it as a context manager, and iterate over `stays` once.

    Raises OSError for an unreadable file.
    """

    def __init__(self, paths: Sequence[str], on_progress: Progress | None = None) -> None:
        self._on_progress = on_progress
        self._orders: list[InOrder] = []
        with ExitStack() as opened:
            self._files = [Lines(path) for path in paths]
            for lines in self._files:
                opened.callback(lines.close)
            self._opened = opened.pop_all()

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def stays(
        self, of: Callable[[Iterable[Row]], Iterator[Stay]], longest_s: float | None = None
    ) -> Iterator[Stay]:
        """Yield the stays that `of` makes from each file's rows.

        `longest_s`: the duration of the longest stay in seconds; None: not known.
        """
        self._orders = [InOrder(of(self._rows(lines)), longest_s) for lines in self._files]
        if len(self._orders) == 1:
            return iter(self._orders[0])
        return merge(*self._orders, key=_start)

    @property
    def late(self) -> int:
        """Number of stays that came too late to be sorted by their starts."""
        return sum(order.late for order in self._orders)

    @property
    def incomplete(self) -> int:
        """Number of incomplete lines, which were skipped."""
        return sum(lines.notes.get(INCOMPLETE, 0) for lines in self._files)

    def error(self, problem: str) -> TraceError:
        """An error that names the line that was read last, and its file."""
        return self._files[-1].error(problem)

    def _rows(self, lines: Lines) -> Iterator[Row]:
        tell = self._on_progress
        for number, row in enumerate(rows(lines)):
            if tell is not None and number % _TELL_EVERY == 0:
                places = [file.position() for file in self._files]
                tell(sum(read for read, _ in places) / max(sum(size for _, size in places), 1))
            yield row


def _start(stay: Stay) -> float:
    return stay.start
