"""What two looks at the metrics of one engine, one after the other, say together.

A file of its own, because it is compiled, and `Signals` cannot be.
"""

from __future__ import annotations

from typing import Final

from router.fleet.signals import Signals

_CLOCK_S: Final = 1.0  # an engine whose clock is set is not a new engine


def went_back(before: Signals, after: Signals) -> bool:
    """Whether a total is less than it was: no engine that lives on says so."""
    return (
        _less(before.prompt_tokens, after.prompt_tokens)
        or _less(before.generated_tokens, after.generated_tokens)
        or _less(before.cache_queries, after.cache_queries)
        or _less(before.cache_hits, after.cache_hits)
        or _less(before.preemptions, after.preemptions)
    )


def restarted(before: Signals, after: Signals) -> bool:
    """Whether the engine was started anew between the two: a total went back, or it says so."""
    if went_back(before, after):
        return True
    if before.started_at is None or after.started_at is None:
        return False
    return after.started_at > before.started_at + _CLOCK_S


def has_worked(before: Signals, after: Signals) -> bool:
    """Whether the engine has computed something between the two: a total has grown, or more of the
    KV cache is in use. Without totals: fewer requests run or wait."""
    if _less(after.generated_tokens, before.generated_tokens):
        return True
    if _less(after.prompt_tokens, before.prompt_tokens):
        return True
    was, usage = before.kv_usage, after.kv_usage
    if was is not None and usage is not None and usage > was:
        return True
    if after.generated_tokens is not None:
        return False  # requests leave a hanging engine, too, when their clients do
    return _less(before.running, after.running) or _less(before.waiting, after.waiting)


def _less(before: int | None, after: int | None) -> bool:
    """Whether a count is known at both moments, and less at the second one."""
    return before is not None and after is not None and after < before
