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
