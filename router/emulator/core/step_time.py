"""The seconds of one step of an engine, from the coefficients explained in `timing.py`.

This is a separate file, because the function is compiled, and `Timing` is sent from process to
process.
"""

from __future__ import annotations


def step_s(
    prefill_s: float,
    prefill_token_s: float,
    prefill_square_s: float,
    decode_s: float,
    decode_sequence_s: float,
    decode_context_s: float,
    tokens: int,
    squares: int,
    sequences: int,
    context: int,
) -> float:
    """Seconds of a step that prefills `tokens` and decodes `sequences`; other arguments as in
    `Timing.step_s`.
    """
    if not tokens:
        return decode_s + decode_sequence_s * sequences + decode_context_s * context
    seconds = prefill_token_s * tokens + prefill_square_s * squares
    if not sequences:
        return prefill_s + seconds
    return (
        max(prefill_s, decode_s)
        + seconds
        + decode_sequence_s * sequences
        + decode_context_s * context
    )
