"""Counts the SLOs and the gain of a request that has ended, in the proxy and the simulator.

Each output token has a deadline (`core/token_gain.py`). The gain is the number of tokens that came
before their deadlines; it is compared with the number of tokens that were due. A request meets its
SLOs if its time to first token is below `view.ttft_slo_s` and its mean time per output token is at
most `view.tpot_slo_s`.

- An answered stream: each token is on time or late by itself.
- An answer that is not streamed: all its tokens are on time if it came before the deadline of its
  last token.
- A failed or refused request: no token is on time; the predicted number of output tokens was due.
- A client that left: the tokens that came were due, and so were the tokens whose deadline had
  passed. If no token was due, the request does not count.
- A request that ended through its client's own fault, or by its key's limits, does not count.

Must never: raise, read a clock, or count a request twice.
"""

from __future__ import annotations

from typing import Final

from router.core.errors import DISCONNECTED, KEY_LIMITS, Reason
from router.core.token_gain import expected_tokens, on_time_at_once, on_time_evenly, tokens_due
from router.dispatch.driver.request import Request
from router.observe.metrics import MET, MISSED, UNJUDGED, Metrics

_OK: Final = Reason.OK  # Looking up a member of an enum is slow.
# Statuses of client errors (4xx) that depend on load, not on the request itself.
_OF_LOAD: Final = (408, 429, 499)


def count_gain(
    request: Request,
    metrics: Metrics,
    label: str,
    reason: Reason,
    status: int,
    tpot_s: float,
    now: float,
) -> None:
    """Count a request that has ended; called once. The result is also in `request.work`.

    `label`: the request's class label. `status`: the status for counters. `tpot_s`: mean seconds
    per token after the first; below 0: unknown.
    """
    if not request.route.inference or request.route.light:
        return
    work, view = request.work, request.view
    has_answer = work.replica is not None
    first_due = view.arrived + view.ttft_slo_s
    slo_s = view.tpot_slo_s
    # Number of tokens that the client received.
    came = 0.0
    if has_answer and (view.stream or reason is _OK):
        came = max(1.0, float(work.usage.output_tokens or 0))
    if reason is _OK and has_answer:
        due = came
    elif reason in DISCONNECTED:
        due = max(came, tokens_due(first_due, slo_s, expected_tokens(view.output_tokens), now))
        if due <= 0.0:
            return
    elif reason in KEY_LIMITS or (400 <= status < 500 and status not in _OF_LOAD):
        return
    else:
        due = max(came, expected_tokens(view.output_tokens))
        came = 0.0
    on_time = 0.0
    ttft, tpot = UNJUDGED, UNJUDGED
    if not view.stream:
        if came > 0.0:
            on_time = on_time_at_once(first_due, slo_s, came, now)
        whole = MET if on_time > 0.0 else MISSED
    else:
        ttft = MISSED
        if came > 0.0:
            if work.timely >= 0.0:
                on_time = work.timely * came
            else:
                on_time = on_time_evenly(first_due, slo_s, came, work.first_at, now)
            if work.first_at < first_due:
                ttft = MET
            if tpot_s >= 0.0:
                tpot = MET if tpot_s <= slo_s else MISSED
        whole = MET if ttft == MET and tpot != MISSED else MISSED
    work.tokens_on_time = on_time
    work.tokens_due = due
    metrics.judged(label, view.worth * on_time, view.worth * due, ttft, tpot, whole)
