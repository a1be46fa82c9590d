"""The duration of one step of an engine, from the coefficients explained in `timing.py`.

The function has a file of its own, because the file is compiled. `Timing` is not compiled, because
it is pickled: a frozen dataclass compiled by mypyc cannot be unpickled.
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
    """Duration, in seconds, of a step that prefills `tokens` tokens and decodes `sequences`
    sequences. The other arguments are those of `Timing` and `Timing.step_s`.
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
