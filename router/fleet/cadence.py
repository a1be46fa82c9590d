"""Measures the current speed of a replica's streams, in seconds per output token.

A stream counts its events while it is relayed: one addition per event. `look` divides the time that
the streams ran since the last call by the tokens that came in that time. So the result describes
the streams that run now, and it is `None` when no stream runs. An average over finished streams
would not change while only long streams run, or while no stream runs.

An event may carry several tokens (speculative decoding, `stream_interval`). The tokens per event
are learned from streams whose engine reports an exact token count.

Must never: read a clock, or cost more than one addition per token.
"""

from __future__ import annotations

from typing import Final

# Seconds of running time, summed over all streams, that one measurement needs. A shorter time is
# carried over to the next call of `look`.
LEAST_S: Final = 0.25
SMOOTHING: Final = 0.1  # Weight of one finished stream in the average of tokens per event.
MOST_TOKENS: Final = 64.0  # Upper limit of tokens per event.


class Cadence:
    """The speed of the streams that are relayed from one replica."""

    __slots__ = ("_at", "_event_tokens", "_last_s", "_ran_s", "_streams", "events")

    def __init__(self) -> None:
        self.events = 0  # Relayed events since the last `look`, without those that carry no token.
        self._streams = 0  # Number of streams that run now.
        self._ran_s = 0.0  # Running time of all streams since the last `look`, until `_at`.
        self._at = 0.0  # Time (monotonic seconds) until which `_ran_s` was counted.
        self._event_tokens = 1.0
        self._last_s: float | None = None

    @property
    def streams(self) -> int:
        """The number of streams that run now."""
        return self._streams

    def begins(self, now: float, events: int = 0) -> None:
        """Add a stream that starts to run.

        `events`: number of later events of the stream that carry no token.
        """
        self._ran(now)
        self._streams += 1
        self.events -= events

    def ends(self, now: float) -> None:
        """Remove a stream that ended, or whose client has stopped reading."""
        self._ran(now)
        self._streams -= 1

    def learn(self, tokens: int, events: int) -> None:
        """Learn the tokens per event: a finished stream had `tokens` in `events` events with
        content."""
        found = min(MOST_TOKENS, max(1.0, tokens / max(1, events)))
        self._event_tokens += (found - self._event_tokens) * SMOOTHING

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
