"""Measures the current speed of a replica's streams, in seconds per output token.

A stream counts its server-sent events while it is relayed; each event costs one addition. `look`
divides the time that the streams ran since the last call of `look` by the tokens that came in that
time. So the result describes the streams that run now, and it is `None` when no stream runs. An
average over finished streams would not change while only long streams run, or while no stream runs.

A server-sent event may carry several tokens (speculative decoding, `stream_interval`). The number
of tokens per event is learned from streams whose engine reports an exact token count.

Must never: read a clock, or cost more than one addition per token.
"""

from __future__ import annotations

from typing import Final

# Minimum running time of a replica's streams for one measurement: the sum over all streams, in
# seconds. A shorter time is carried over to the next call of `look`.
LEAST_S: Final = 0.25
# Weight of one finished stream in the average number of tokens per server-sent event.
SMOOTHING: Final = 0.1
# A stream with fewer events shows little about the tokens per event: its first event has one token.
LONG: Final = 16
MOST_TOKENS: Final = 64.0  # Upper limit of the learned number of tokens per server-sent event.


class Cadence:
    """The speed of the streams that are relayed from one replica."""

    __slots__ = (
        "_at",
        "_event_tokens",
        "_is_least_known",
        "_last_s",
        "_ran_s",
        "_streams",
        "events",
        "least",
    )

    def __init__(self) -> None:
        # Number of events that were relayed since the last `look` and carry a token.
        self.events = 0
        self._streams = 0  # Number of streams that run now.
        # Running time from the last `look` until `_at`: the sum over all streams, in seconds.
        self._ran_s = 0.0
        # Time (monotonic seconds) until which the running time `_ran_s` was counted.
        self._at = 0.0
        self._event_tokens = 1.0
        # The fewest tokens per event of recent long streams, to count the tokens of a stream that
        # its client has left. It falls at once, and rises slowly.
        self.least = 1.0
        self._is_least_known = False
        self._last_s: float | None = None

    @property
    def streams(self) -> int:
        """The number of streams that run now."""
        return self._streams

    def begins(self, now: float, events: int = 0) -> None:
        """Add a stream that starts to run.

        `events`: how many of the stream's coming events carry no token; they are not counted.
        """
        self._ran(now)
        self._streams += 1
        self.events -= events

    def ends(self, now: float) -> None:
        """Remove a stream that ended, or whose client has stopped reading."""
        self._ran(now)
        self._streams -= 1

    def learn(self, tokens: int, events: int) -> None:
        """Learn the number of tokens per event from a finished stream.

        `tokens`: number of tokens in the stream. `events`: number of its events with content.
        """
        found = min(MOST_TOKENS, max(1.0, tokens / max(1, events)))
        self._event_tokens += (found - self._event_tokens) * SMOOTHING
        if events >= LONG:
            if found < self.least or not self._is_least_known:
                self._is_least_known = True
                self.least = found
            else:
                self.least += (found - self.least) * SMOOTHING

    def look(self, now: float) -> float | None:
        """Return the seconds per output token since the last call; `None` if no stream runs."""
        self._ran(now)
        if self._ran_s < LEAST_S:
            if not self._streams:
                self._last_s = None
            return self._last_s
        # Every stream counts as at least one token, because its next token may come at any moment.
        tokens = max(self.events * self._event_tokens, float(self._streams), 1.0)
        found = self._ran_s / tokens
        self.events = 0
        self._ran_s = 0.0
        if not self._streams:
            self._last_s = None
        elif self._last_s is None:
            self._last_s = found
        else:
            self._last_s = (self._last_s + found) / 2.0
        return self._last_s

    def _ran(self, now: float) -> None:
        if self._streams and now > self._at:
            self._ran_s += self._streams * (now - self._at)
        self._at = now
