"""Counts the tokens of a stream that come before their deadlines, if all intervals are equal.

Token i, from 0, has the deadline `first deadline + i * TPOT SLO`, as in the token-level
deadline-aware gain of PROSERVE (arXiv 2512.12928). The router uses this count for the gain of ended
requests (`router/core/token_gain.py`). The policy `gain` uses it to predict the gain of a request.

The function is pure. Must never: be used for a stream whose tokens were read one by one.
"""

from __future__ import annotations

from math import ceil, floor


def on_time(late_s: float, gains_s: float, tokens: float) -> float:
    """Return how many tokens come before their deadlines.

    `late_s`: seconds from the deadline of the first token to the first token. `gains_s`: seconds by
    which each further token is less late than the one before. `tokens`: a whole number. Token i is
    late if late_s - i * gains_s is 0 or more.
    """
    if gains_s < 0.0:  # The stream is slower than its SLO: the first tokens are on time.
        share = late_s / gains_s
        return 0.0 if late_s >= 0.0 else tokens if share >= tokens else float(ceil(share))
    if late_s < 0.0:
        return tokens
    # The stream is faster than its SLO: the last tokens are on time.
    if late_s >= gains_s * (tokens - 1.0):
        return 0.0
    return tokens - 1.0 - floor(late_s / gains_s)
