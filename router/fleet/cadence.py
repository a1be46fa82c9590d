"""How fast the streams that a replica sends now make progress: seconds per output token.

Streams count their events as they are relayed, one addition each. A look divides the time that the
streams ran since the last look by the tokens that came. So the figure follows what runs now, and is
unknown (None) when nothing does: an average over finished streams stays as it is while long streams
run, or none.

An event may carry several tokens (speculative decoding, `stream_interval`). Streams whose engine
tells their exact token count teach how many.

Must never: look at a clock, or be asked for more than an addition per token.
"""

from __future__ import annotations

from typing import Final

LEAST_S: Final = 0.25  # of streams' time; less is left for the next look
SMOOTHING: Final = 0.1  # of a finished stream, in the tokens per event
MOST_TOKENS: Final = 64.0  # of one event


class Cadence:
    """Of one replica's relayed streams."""

    __slots__ = ("_at", "_event_tokens", "_last_s", "_ran_s", "_streams", "events")

    def __init__(self) -> None:
        self.events = 0  # relayed since the last look, those without a token taken off
        self._streams = 0  # that run now
        self._ran_s = 0.0  # all streams together, since the last look ...
        self._at = 0.0  # ... until then
        self._event_tokens = 1.0
        self._last_s: float | None = None

    def begins(self, now: float, events: int = 0) -> None:
        """A stream runs; it counts so many events that are no token after the first."""
        self._ran(now)
        self._streams += 1
        self.events -= events

    def ends(self, now: float) -> None:
        """A stream runs no longer, or its client has stopped reading."""
        self._ran(now)
        self._streams -= 1

    def learn(self, tokens: int, events: int) -> None:
        """A stream of so many tokens had so many events with content."""
        found = min(MOST_TOKENS, max(1.0, tokens / max(1, events)))
        self._event_tokens += (found - self._event_tokens) * SMOOTHING

    def look(self, now: float) -> float | None:
        """Seconds per output token since the last look; None: nothing runs."""
        self._ran(now)
        if self._ran_s < LEAST_S:
            if not self._streams:
                self._last_s = None
            return self._last_s
        # Streams that showed nothing are taken to be about to show one token each.
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
