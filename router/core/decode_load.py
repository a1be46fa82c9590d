"""The decoding sequences of one replica over time: their number and the tokens of their contexts.

A stream's mean time per token depends on all sequences that decoded beside it, and on the prompts
that were prefilled meanwhile. So the numbers are summed over time: the difference between two
readings of a sum, divided by the time between, is the mean. The sums are updated when a stream of
this router begins or ends and at each poll. Between these times the numbers count as constant.

The contexts of this router's own streams are known: their prompts, and about the tokens generated
since. Sequences of other clients, and answers that are not streamed, count with the mean context of
the own streams. Without an own stream, the KV cache usage is used if the engine reports it.

Must never: read a clock, or cost anything per token.
"""

from __future__ import annotations

from router.core.replica_load import ReplicaLoad


class DecodeLoad:
    """The decode load of one replica. Times are monotonic seconds."""

    __slots__ = (
        "_at",
        "_began_sum",
        "_prompts",
        "_streams",
        "context",
        "context_s",
        "prefilled",
        "sequence_s",
        "sequences",
    )

    def __init__(self) -> None:
        self.sequences = 0.0  # Decoding sequences since the last update.
        self.context = 0.0  # Tokens of their contexts.
        self.sequence_s = 0.0  # `sequences`, summed over time.
        self.context_s = 0.0  # `context`, summed over time.
        self.prefilled = 0  # Uncached tokens of all prompts whose first token has come.
        self._at = 0.0  # Time of the last update.
        self._streams = 0  # Own streams that decode.
        self._prompts = 0  # Tokens of their prompts.
        self._began_sum = 0.0  # Sum of the times of their first tokens.

    def begins(self, prompt_tokens: int, uncached: int, now: float) -> None:
        """Add an own stream whose first token has come. Call `look` before and after."""
        self._streams += 1
        self._prompts += prompt_tokens
        self._began_sum += now
        self.prefilled += uncached

    def ends(self, prompt_tokens: int, began: float) -> None:
        """Remove an own stream. Call `look` before and after."""
        self._streams -= 1
        self._prompts -= prompt_tokens
        self._began_sum -= began
        if not self._streams:
            self._began_sum = 0.0  # Rounding errors must not add up.

    def look(self, place: ReplicaLoad, token_s: float, now: float) -> None:
        """Update the sums until `now` and the numbers from now on.

        `token_s`: about the seconds per token of a stream.
        """
        elapsed_s = now - self._at
        if elapsed_s > 0.0:
            self.sequence_s += self.sequences * elapsed_s
            self.context_s += self.context * elapsed_s
            self._at = now
        running = float(max(0, place.load - place.waiting))
        self.sequences = running
        if self._streams > 0:
            generated = max(0.0, self._streams * now - self._began_sum) / token_s
            self.context = (self._prompts + generated) / self._streams * running
        elif running > 0.0 and place.kv_usage is not None and place.kv_tokens is not None:
            self.context = place.kv_usage * place.kv_tokens
        else:
            self.context = 0.0
