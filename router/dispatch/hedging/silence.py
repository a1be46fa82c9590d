"""Decides whether an attempt has waited too long at a replica that shows no work.

A hanging replica shows no work for any request. So a request there is late much earlier than by the
distribution of all times to first content, and even before any time is known. If the other replicas
are idle, a copy is sent after `FACTOR` times the usual time to the first token, at least `LEAST_S`.
With the copy's own time, the request is then answered within a second, or within three times the
usual time.

Signs of work (`core/progress.py`) are content of other streams, whole answers, and totals that grow
between two polls. Work that may have been done before the attempt was sent does not count, because
the replica may have hung since. An answer that is not streamed shows nothing before its end:

- If the replica shows no work at all, the answer is late after `FACTOR` times the usual time of a
  whole answer.
- If the engine counts tokens while it generates, a poll shows its work. So the answer is also late
  if a poll shows no work after the usual time of a first token.

Must never: read a clock.
"""

from __future__ import annotations

from math import inf
from typing import Final

from router.fleet.replica import Replica

LEAST_S: Final = 0.5
FACTOR: Final = 1.75


def limit_s(usual_s: float) -> float:
    """Return the longest wait without a sign of work. `usual_s`: the usual time; 0: unknown."""
    return max(LEAST_S, FACTOR * usual_s)


def silent_from(
    replica: Replica, began: float, is_streamed: bool, first_s: float, whole_s: float
) -> float:
    """Return the time from which on an attempt without content counts as silent.

    `began`: when the attempt was sent. `first_s`, `whole_s`: usual seconds to the first token and
    to the end of an answer; 0: unknown. Infinity: only a later poll can show it.
    """
    progress = replica.progress
    worked_at = progress.after(began)
    silent = worked_at + limit_s(first_s)
    if is_streamed:
        return silent
    if replica.descriptor.counts_live and replica.reports.signals.generated_tokens is not None:
        if replica.reports.at >= silent and replica.reports.at > progress.polled_at:
            return silent
        if worked_at > began:
            return inf
    return max(silent, began + limit_s(whole_s))
