"""The coefficients of the speed of one replica's engine, from which a policy predicts latencies.

    time to first token   rtt_s + base_s + token_s * (pending + uncached)
                          + attention_s * uncached * (cached + uncached / 2) + running_s * running
    time per token        (step_s + sequence_s * sequences + context_s * context tokens)
                          / (1 - delay_share)

The first formula adds the measured round-trip time to the replica (`rtt_s`), the prefill of the
prompts that the engine serves first, the prefill of this prompt, and its attention to the cached
prefix. Except for `rtt_s`, xLLM's estimator has the same terms (`time_predictor.cpp`). Each running
sequence adds `running_s`, because it decodes in the same steps as the prefill. The coefficients are
learned without `rtt_s`, so that replicas in all regions share them. The second formula is the
decode step of the same estimator for the present batch. But prompts that arrive later are prefilled
between the steps of a stream, and its batch grows or shrinks. `delay_share` is the share of a
stream's time that these changes take. It is learned from the streams that have ended.

The router learns the coefficients from the replica's own answers. Until then the coefficients
learned from other replicas of the same model are used. Without such replicas, the assumed values
below are used.

Must never: learn, read a clock, or return a negative number.
"""

from __future__ import annotations

from typing import Final

# These values are used until others are learned. They are those of Bloom-176B on 8 A100 GPUs, the
# slowest engine of the public measurements (Splitwise, ISCA 2024). A prefill of L tokens takes 65
# ms + 0.19 ms * L + 3e-5 ms * L^2, after a decode step of 48 ms; a decode step takes 48 ms + 0.47
# ms for each sequence + 4.4e-4 ms for each token of context. `RUNNING_S` is the time that one
# sequence with a context of 1,000 tokens adds to a step.
STEP_LEAST_S: Final = 1e-4  # a shorter predicted step is an error of the fit
BASE_S: Final = 0.113
TOKEN_S: Final = 1.9e-4
ATTENTION_S: Final = 6e-8
RUNNING_S: Final = 9e-4
STEP_S: Final = 0.048
SEQUENCE_S: Final = 4.65e-4
CONTEXT_S: Final = 4.4e-7


class EngineSpeed:
    """The coefficients of one replica. The router updates the object in place.

    Times are seconds; tokens are prompt tokens, or tokens of a context.
    """

    __slots__ = (
        "attention_s",
        "base_s",
        "context_s",
        "delay_share",
        "is_known",
        "is_pace_known",
        "rtt_s",
        "running_s",
        "sequence_s",
        "serves_since",
        "step_s",
        "token_s",
    )

    def __init__(self) -> None:
        # Whether the coefficients for the time to first token were learned, from this replica or
        # from other replicas of its model. If not, all coefficients are assumed.
        self.is_known = False
        self.base_s = BASE_S
        self.token_s = TOKEN_S
        self.attention_s = ATTENTION_S
        self.running_s = RUNNING_S
        self.step_s = STEP_S
        self.sequence_s = SEQUENCE_S
        self.context_s = CONTEXT_S
        # Whether the coefficients for a decode step were learned, too.
        self.is_pace_known = False
        # The round-trip time from the router to the replica, in seconds; 0: not measured yet.
        self.rtt_s = 0.0
        # The share of a stream's time that is caused by requests sent after it; below 1. A negative
        # share means that streams are faster than predicted from their first batch, because the
        # batch shrinks.
        self.delay_share = 0.0
        # The time since which the engine has worked on the prompts that wait now, in monotonic
        # seconds. It is the time of the last first token, or of the first dispatch to an engine
        # without waiting prompts.
        self.serves_since = 0.0

    def tokens_left(self, pending_tokens: float, now: float) -> float:
        """Return how many of `pending_tokens` are probably not prefilled yet at `now`.

        `pending_tokens`: uncached tokens of all prompts at the replica without a first token
        (`Candidate.pending_tokens`). The engine has worked on them since `serves_since`, but shows
        no progress before the next first token.
        """
        if pending_tokens <= 0.0:
            return 0.0
        worked_s = now - self.serves_since
        if worked_s <= 0.0 or self.token_s <= 0.0:
            return pending_tokens
        left = pending_tokens - worked_s / self.token_s
        return max(0.0, left)

    def ttft_s(
        self,
        pending_tokens: float,
        uncached_tokens: float,
        cached_tokens: float,
        running: float,
    ) -> float:
        """Return the predicted seconds from the dispatch to the first token, including `rtt_s`.

        The arguments are those of `prefill_s`. The prediction is not valid for a request that has
        to wait for a free slot in the engine.
        """
        return self.rtt_s + self.prefill_s(pending_tokens, uncached_tokens, cached_tokens, running)

    def prefill_s(
        self,
        pending_tokens: float,
        uncached_tokens: float,
        cached_tokens: float,
        running: float,
    ) -> float:
        """Return the predicted seconds that the engine takes until the first token.

        `pending_tokens`: uncached tokens of other prompts that are served before this one; see
        `tokens_left`. `uncached_tokens`, `cached_tokens`: the tokens of this prompt. `running`: the
        number of sequences that decode at the replica.
        """
        attention = uncached_tokens * (cached_tokens + 0.5 * uncached_tokens)
        return (
            self.base_s
            + self.token_s * (pending_tokens + uncached_tokens)
            + self.attention_s * attention
            + self.running_s * running
        )

    def tpot_s(self, sequences: float, context_tokens: float) -> float:
        """Return the predicted seconds per output token after the first one.

        `sequences`: the number of decoding sequences, including this request. `context_tokens`: the
        tokens of all their contexts.
        """
        return self.step_time_s(sequences, context_tokens) / (1.0 - self.delay_share)

    def step_time_s(self, sequences: float, context_tokens: float) -> float:
        """Return the predicted seconds of a step without prefill; `tpot_s` explains the
        arguments."""
        step_s = self.step_s + self.sequence_s * sequences + self.context_s * context_tokens
        # All three coefficients are 0 if the fit explains all samples by prefills.
        return max(STEP_LEAST_S, step_s)
