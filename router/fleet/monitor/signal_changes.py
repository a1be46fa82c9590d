"""Compares two successive polls of one engine's metrics.

This file is separate from `signals.py`, because this file is compiled and `Signals` cannot be
compiled.
"""

from __future__ import annotations

from typing import Final

from router.fleet.signals import Signals

# Tolerance in seconds for the reported start time: a change of the engine's clock is not a restart.
_CLOCK_S: Final = 1.0


def went_back(before: Signals, after: Signals) -> bool:
    """Return whether a total has decreased. A running engine never reports a decreased total."""
    return (
        _less(before.prompt_tokens, after.prompt_tokens)
        or _less(before.generated_tokens, after.generated_tokens)
        or _less(before.cache_queries, after.cache_queries)
        or _less(before.cache_hits, after.cache_hits)
        or _less(before.preemptions, after.preemptions)
    )


def restarted(before: Signals, after: Signals) -> bool:
    """Return whether the engine restarted between the polls: a total decreased, or the start time
    is later."""
    if went_back(before, after):
        return True
    if before.started_at is None or after.started_at is None:
        return False
    return after.started_at > before.started_at + _CLOCK_S


def has_worked(before: Signals, after: Signals) -> bool:
    """Return whether the engine computed something between the two polls.

    The signs of work are: a total has grown, or more of the KV cache is in use. If the engine
    reports no generated tokens, there is another sign: fewer requests run or wait than before.
    """
    if _less(after.generated_tokens, before.generated_tokens):
        return True
    if _less(after.prompt_tokens, before.prompt_tokens):
        return True
    was, usage = before.kv_usage, after.kv_usage
    if was is not None and usage is not None and usage > was:
        return True
    if after.generated_tokens is not None:
        return False  # Requests also leave a hanging engine, when their clients disconnect.
    return _less(before.running, after.running) or _less(before.waiting, after.waiting)


def _less(before: int | None, after: int | None) -> bool:
    """Return whether a count is known in both polls and has decreased."""
    return before is not None and after is not None and after < before
