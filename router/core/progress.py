"""Records when a replica last showed work, and how long its work usually takes.

A late first token does not show that a replica hangs, because the replica may compute for other
requests. So the router suspects a replica only if it shows no work at all. These count as work: a
content event of any stream, a whole response, and totals of the engine that have grown between two
polls.

These do not count as work: the head of a response (vLLM sends it before it computes anything), a
comment in a stream, and the answer to a probe. A replica that hangs sends all of them.

The code that runs for each token writes only `at`. Times are monotonic seconds.
"""

from __future__ import annotations

from math import inf
from typing import Final

# Weight of a new observation in a mean.
SMOOTHING: Final = 0.1


def smoothed(usual: float | None, seen: float) -> float:
    """Return the mean after one more observation. `usual`: the mean before; `None`: unknown."""
    return seen if usual is None else usual + (seen - usual) * SMOOTHING


class Progress:
    """The work that one replica has shown."""

    __slots__ = ("at", "first_s", "first_tokens", "polled_at", "polled_since", "whole_s")

    def __init__(self) -> None:
        self.at = -inf  # When the replica last showed work.
        # The last poll that showed work, and the poll before it: the work was done between them.
        self.polled_at = -inf
        self.polled_since = -inf
        # Mean seconds from the dispatch to the first content of a stream that did not wait for
        # other requests; 0: unknown.
        self.first_s = 0.0
        # Mean uncached prompt tokens of a stream that did not wait for other requests.
        self.first_tokens = 0.0
        # Mean seconds from the dispatch to a response that is not streamed; 0: unknown.
        self.whole_s = 0.0

    def polled(self, since: float, now: float) -> None:
        """Record that the totals of a poll are above those of the poll at the time `since`."""
        self.at = self.polled_at = now
        self.polled_since = since

    def after(self, since: float) -> float:
        """Return when the replica last showed work, if that work was done after `since`.

        Otherwise return `since`. Totals may have grown before `since`, if a poll shows it later.
        """
        if self.at <= since or (self.at == self.polled_at and self.polled_since < since):
            return since
        return self.at

    def first_token(self, took_s: float, tokens: int, is_alone: bool) -> None:
        """Record the first content of a stream.

        `is_alone` is True if no other request waited at the replica at the same time. Otherwise the
        time includes the work for other requests, so it is used only if it is the first one or
        shorter than the mean.
        """
        usual = self.first_s
        if usual <= 0.0:
            self.first_s, self.first_tokens = took_s, float(tokens)
        elif is_alone or took_s < usual:
            self.first_s = usual + (took_s - usual) * SMOOTHING
            self.first_tokens += (tokens - self.first_tokens) * SMOOTHING

    def whole_answer(self, took_s: float) -> None:
        usual = self.whole_s
        self.whole_s = took_s if usual <= 0.0 else usual + (took_s - usual) * SMOOTHING
