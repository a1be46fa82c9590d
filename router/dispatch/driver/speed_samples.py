"""Reports the attempts of a request to the speed learners of their replicas.

Speeds are learned only from streamed requests. The facts at the dispatch are kept in the attempt
(`speed_sample`).

Must never: learn, predict, or do work for an attempt that is not streamed.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt
from router.fleet.utilisation import slots_of


def sample_dispatched(attempt: Attempt, prompt_tokens: int, now: float) -> None:
    """Report a streamed attempt that has just got its lease."""
    replica = attempt.at
    slots = slots_of(replica)
    attempt.speed_sample = replica.learned.speeds.dispatched(
        replica,
        attempt.tokens,
        max(0, prompt_tokens - attempt.tokens),
        -1.0 if slots is None else float(slots),
        now,
    )


def sample_shown(attempt: Attempt, ttft_s: float, now: float) -> None:
    """Report the first content of the winner's stream."""
    sample = attempt.speed_sample
    if sample is not None:
        replica = attempt.at
        replica.learned.speeds.shown(replica, sample, ttft_s, attempt.is_timed, now)


def sample_cut(attempt: Attempt, now: float) -> None:
    """Report an attempt that has ended without content."""
    sample = attempt.speed_sample
    if sample is not None and attempt.is_sent and attempt.is_timed:
        attempt.at.learned.speeds.cut(sample, now - attempt.began, now)


def samples_ended(
    attempts: Sequence[Attempt], reason: Reason, output: int | None, is_exact: bool, now: float
) -> None:
    """Report the end of a request, for each of its attempts.

    `output`, `is_exact`: the output tokens of the request, and whether the engine counted them.
    """
    for attempt in attempts:
        sample = attempt.speed_sample
        if sample is None:
            continue
        attempt.speed_sample = None
        # If another replica resumed the stream, the attempt generated only a part of the tokens.
        is_whole = is_exact and reason is Reason.OK and attempt.reason is Reason.OK
        tokens = output if is_whole and output is not None else 0
        replica = attempt.at
        replica.learned.speeds.ended(replica, sample, tokens, attempt.is_timed, now)
