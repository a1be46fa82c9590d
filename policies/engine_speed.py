"""The speed of one replica's engine as coefficients, from which a policy predicts latencies.

    time to first token   base_s + token_s * (pending + uncached)
                          + attention_s * uncached * (cached + uncached / 2) + running_s * running
    time per token        (step_s + sequence_s * sequences + context_s * context tokens)
                          / (1 - delay_share)

The first line is a prefill with its attention to the cached prefix, after the prompts that the
engine serves before it; xLLM's estimator has the same terms (`time_predictor.cpp`). The running
sequences decode in the steps of the prefill. The second line is the decode step of the same
estimator for the batch of now. Most of a stream's life is after its dispatch: prompts that arrive
later are prefilled between its steps, and its batch grows or shrinks. `delay_share` is the share of
a stream's time that this takes, learned from the streams that have ended.

The router learns the coefficients from the replica's own answers. Until then they are those that
other replicas of the model have taught, and before that the assumed ones below.

Must never: learn, read a clock, or return a negative number.
"""

from __future__ import annotations

from typing import Final

# Before anything is known: Bloom-176B on 8 A100 GPUs, the slowest engine of the public
# measurements (Splitwise, ISCA 2024). A prefill of L tokens takes 65 ms + 0.19 ms * L +
# 3e-5 ms * L^2, after a decode step of 48 ms; a decode step takes 48 ms + 0.47 ms for each sequence
# + 4.4e-4 ms for each token of context. `RUNNING_S` is what one sequence with a context of 1,000
# tokens adds to a step.
STEP_LEAST_S: Final = 1e-4  # a faster step is a mistake of the fit
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
        "running_s",
        "sequence_s",
        "serves_since",
        "step_s",
        "token_s",
    )

    def __init__(self) -> None:
        # Whether the coefficients of the first token were learned, from this replica or from other
        # replicas of its model. If not, all coefficients are assumed.
        self.is_known = False
        self.base_s = BASE_S
        self.token_s = TOKEN_S
        self.attention_s = ATTENTION_S
        self.running_s = RUNNING_S
        self.step_s = STEP_S
        self.sequence_s = SEQUENCE_S
        self.context_s = CONTEXT_S
        # Whether the coefficients of a step were learned, too.
        self.is_pace_known = False
        # Share of a stream's time that comes from requests after its dispatch; below 1. Below 0:
        # streams are faster than predicted from their first batch, because it shrinks.
        self.delay_share = 0.0
        # Monotonic time since when the engine works on the prompts that wait now. It is the time of
        # the last first token, or of the first dispatch to an engine without waiting prompts.
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
        """Return the predicted seconds from the dispatch to the first token.

        `pending_tokens`: uncached tokens of other prompts that are served before this one; see
        `tokens_left`. `uncached_tokens`, `cached_tokens`: this prompt's tokens. `running`:
        sequences that decode at the replica. The prediction is not valid for a request that has to
        wait for a free slot in the engine.
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

        `sequences`: decoding sequences, including the request. `context_tokens`: the tokens of all
        their contexts.
        """
        return self.step_time_s(sequences, context_tokens) / (1.0 - self.delay_share)

    def step_time_s(self, sequences: float, context_tokens: float) -> float:
        """Return the predicted seconds of a step that prefills nothing; arguments as above."""
        step_s = self.step_s + self.sequence_s * sequences + self.context_s * context_tokens
        # Prefills may explain all samples, so that all three coefficients are 0.
        return max(STEP_LEAST_S, step_s)
