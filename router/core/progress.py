"""What a replica has shown of its work: when it computed something last, and how long work takes.

Suspicion of a replica needs evidence against it. A first token that is late is no such evidence
while the replica computes for other requests; silence is. These count as work: a content event of
any stream, a whole answer, and totals of the engine that have grown between two polls.

These do not count: the head of a response, which vLLM sends before it computes anything; a comment
in a stream; the answer to a probe. A replica that hangs sends all of them.

The path of a token writes `at` and nothing else. Times are monotonic seconds.
"""

from __future__ import annotations

from math import inf
from typing import Final

# The share of a new observation in a mean.
SMOOTHING: Final = 0.1


class Progress:
    """The work of one replica."""

    __slots__ = ("at", "first_s", "first_tokens", "whole_s")

    def __init__(self) -> None:
        self.at = -inf  # when the replica last showed that it computes
        # From dispatch to the first content of a stream before which nothing waited; 0: unknown ...
        self.first_s = 0.0
        self.first_tokens = 0.0  # ... and the uncached prompt tokens of such a stream
        self.whole_s = 0.0  # from dispatch to an answer that is not streamed; 0: unknown

    def first_token(self, took_s: float, tokens: int, is_alone: bool) -> None:
        """The first content of a stream came. `is_alone`: no other request waited there with it.

        A stream that waited for others says how long their work takes, not its own.
        """
        usual = self.first_s
        if usual <= 0.0:
            self.first_s, self.first_tokens = took_s, float(tokens)
        elif is_alone or took_s < usual:
            self.first_s = usual + (took_s - usual) * SMOOTHING
            self.first_tokens += (tokens - self.first_tokens) * SMOOTHING

    def whole_answer(self, took_s: float) -> None:
        """An answer that is not streamed came."""
        usual = self.whole_s
        self.whole_s = took_s if usual <= 0.0 else usual + (took_s - usual) * SMOOTHING
