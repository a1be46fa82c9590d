"""Statistics of an engine that its core does not keep: latencies and counts of ended requests.

There is no work per token. Every decoding request gets one token per step, so a step is one
observation of the time between tokens, weighted by the number of its tokens.
"""

from __future__ import annotations

from router.lab.emulator.core.histogram import Histogram
from router.lab.emulator.http.job import Job

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
