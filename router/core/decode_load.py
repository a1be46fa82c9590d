"""Measures the decode load of one replica: how many sequences decode, and their context tokens.

A stream's mean time per token depends on all sequences that decoded at the same time, and on the
prompts that were prefilled meanwhile. So the number of sequences and the number of context tokens
are integrated over time. The difference between two readings of an integral, divided by the time
between them, is the mean. The integrals are updated when a stream of this router begins or ends and
at each poll. Between these times both numbers count as constant.

The contexts of this router's own streams are their prompts and an estimate of the tokens generated
since. Sequences of other clients, and answers that are not streamed, count with the mean context of
the router's own streams. If the router has no stream at the replica, the context is computed from
the KV cache usage that the engine reports.

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
        self.sequences = 0.0  # Number of decoding sequences since the last update.
        self.context = 0.0  # Number of context tokens of these sequences.
        self.sequence_s = 0.0  # The integral of `sequences` over time.
        self.context_s = 0.0  # The integral of `context` over time.
        # Uncached tokens of the prompts of all own streams that got a first token.
        self.prefilled = 0
        self._at = 0.0  # Time of the last update.
        self._streams = 0  # Number of this router's streams that decode.
        self._prompts = 0  # Number of prompt tokens of these streams.
        self._began_sum = 0.0  # Sum of the times of the first tokens of these streams.

    def begins(self, prompt_tokens: int, uncached: int, now: float) -> None:
        """Add a stream of this router that got its first token. Call `look` before and after."""
        self._streams += 1
        self._prompts += prompt_tokens
        self._began_sum += now
        self.prefilled += uncached

    def ends(self, prompt_tokens: int, began: float) -> None:
        """Remove a stream of this router. Call `look` before and after."""
        self._streams -= 1
        self._prompts -= prompt_tokens
        self._began_sum -= began
        if not self._streams:
            self._began_sum = 0.0  # Rounding errors would otherwise accumulate.

    def look(self, place: ReplicaLoad, token_s: float, now: float) -> None:
        """Update the integrals up to `now`, then the present numbers from the replica's counts.

        `token_s` is an estimate of the seconds per token of a stream.
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
