"""Statistics of an engine that its core does not keep: latencies and counts of ended requests.

There is no work per token. Every decoding request gets one token per step, so a step is one
observation of the time between tokens, weighted by the number of its tokens.

`Histogram`: a histogram with integer counts. An observation costs one binary search.

`Gauges`, `LaggingGauges`: delays the gauges that an engine shows on its metrics page.

The gauges of vLLM 0.32 show the state of 0.5 to 1 s ago (measured). Counters are not delayed. This
module must keep no states older than the delay, except the newest of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from router.lab.emulator.http.job import Job


class Histogram:
    """A histogram whose buckets have the ascending upper `bounds`.

    A value that equals a bound is in the bucket of this bound, as in Prometheus.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """Pairs (`le` label, number of observations up to that bound); the last label is `+Inf`."""
        total = 0
        rows = []
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            rows.append(("+Inf" if bound is None else str(bound), total))
        return rows


# The bounds of vLLM's own histogram buckets, in seconds.
_TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_TOKEN_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_REQUEST_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip


class Statistics:
    """The statistics of one engine. All times are in seconds."""

    def __init__(self) -> None:
        self.ttft = Histogram(_TTFT_BUCKETS)
        self.inter_token = Histogram(_TOKEN_BUCKETS)
        # The mean time per output token of each request, without the first token.
        self.per_token = Histogram(_TOKEN_BUCKETS)
        self.whole = Histogram(_REQUEST_BUCKETS)
        self.ended = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.rejected = 0  # requests rejected because the queue was full
        # Received generation requests, including those whose clients left before they were queued.
        self.asked = 0
        self.asked_tokens = 0  # prompt tokens of the requests in `asked`
        self.last_token_s = 0.0  # duration of the last step that decoded, in seconds

    def first_token(self, seconds: float) -> None:
        self.ttft.observe(seconds)

    def between_tokens(self, seconds: float, tokens: int) -> None:
        self.inter_token.observe(seconds, tokens)
        self.last_token_s = seconds

    def finished(self, job: Job, now: float) -> None:
        self.ended[job.finish_reason] += 1
        self.whole.observe(now - job.arrival)
        if job.output_tokens > 1:
            self.per_token.observe((now - job.first_token_at) / (job.output_tokens - 1))


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
