"""What one look at an engine's metrics says, whatever engine it is.

Everything is `None` that the engine did not say, or said as NaN, as a negative number or as
something that cannot be. Counters are totals since the engine's start.
"""

from __future__ import annotations

import msgspec


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one replica as its engine tells it."""

    running: int | None = None  # requests in the batch
    waiting: int | None = None  # requests in the engine's own queue
    kv_usage: float | None = None  # share of the KV cache in use, 0 to 1
    kv_tokens: int | None = None  # tokens that fit into the KV cache
    block_tokens: int | None = None  # tokens of one KV block
    slots: int | None = None  # requests the engine runs at once
    asleep: bool = False  # sleeping, draining or scaling: it serves nobody now
    adapters: frozenset[str] = frozenset()  # adapters that are loaded now
    # Totals. One that goes back says that the engine was restarted.
    started_at: float | None = None  # process start, seconds since the epoch
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    cache_queries: int | None = None  # prompt tokens looked up in the prefix cache ...
    cache_hits: int | None = None  # ... and found there
    preemptions: int | None = None


NO_SIGNALS = Signals()


def went_back(before: Signals, after: Signals) -> bool:
    """Whether a total is less than it was: no engine that lives on says so."""
    for name in _TOTALS:
        was, is_ = getattr(before, name), getattr(after, name)
        if was is not None and is_ is not None and is_ < was:
            return True
    return False


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
    if _more(before.generated_tokens, after.generated_tokens):
        return True
    if _more(before.prompt_tokens, after.prompt_tokens) or _more(before.kv_usage, after.kv_usage):
        return True
    if after.generated_tokens is not None:
        return False  # requests leave a hanging engine, too, when their clients do
    return _more(after.running, before.running) or _more(after.waiting, before.waiting)


def _more(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after > before


_TOTALS = ("prompt_tokens", "generated_tokens", "cache_queries", "cache_hits", "preemptions")
_CLOCK_S = 1.0  # an engine whose clock is set is not a new engine
