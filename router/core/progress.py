"""Records when a replica last showed work, and how long its work usually takes.

Suspicion of a replica needs evidence. A late first token is no evidence while the replica computes
for other requests; silence is. These count as work: a content event of any stream, a whole
response, and totals of the engine that have grown between two polls.

These do not count as work: the head of a response (vLLM sends it before it computes anything), a
comment in a stream, and the answer to a probe. A replica that hangs sends all of them.

The per-token path writes only `at`. Times are monotonic seconds.
"""

from __future__ import annotations

from math import inf
from typing import Final

# Weight of a new observation in a mean.
SMOOTHING: Final = 0.1


class Progress:
    """The work that one replica has shown."""

    __slots__ = ("at", "first_s", "first_tokens", "whole_s")

    def __init__(self) -> None:
        self.at = -inf  # When the replica last showed work.
        # Seconds from dispatch to the first content of a stream that did not wait for others; 0:
        # unknown.
        self.first_s = 0.0
        self.first_tokens = 0.0  # Mean uncached prompt tokens of such a stream.
        self.whole_s = 0.0  # Seconds from dispatch to a response that is not streamed; 0: unknown.

    def first_token(self, took_s: float, tokens: int, is_alone: bool) -> None:
        """Record the first content of a stream. `is_alone`: no other request waited there with it.

        The time of a stream that waited for others measures their work, not its own.
        """
        usual = self.first_s
        if usual <= 0.0:
            self.first_s, self.first_tokens = took_s, float(tokens)
        elif is_alone or took_s < usual:
            self.first_s = usual + (took_s - usual) * SMOOTHING
            self.first_tokens += (tokens - self.first_tokens) * SMOOTHING

    def whole_answer(self, took_s: float) -> None:
        """Record a response that was not streamed."""
        usual = self.whole_s
        self.whole_s = took_s if usual <= 0.0 else usual + (took_s - usual) * SMOOTHING
