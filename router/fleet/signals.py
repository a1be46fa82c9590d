"""The result of one poll of an engine's metrics, in the same form for every engine.

A field is `None` if the engine did not report it, or reported NaN, a negative number or an
impossible value. Counters are totals since the engine's start.
"""

from __future__ import annotations

import msgspec


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one replica as its engine reports it."""

    running: int | None = None  # Number of requests in the engine's running batch.
    waiting: int | None = None  # Number of requests in the engine's own queue.
    kv_usage: float | None = None  # Share of the KV cache in use, 0 to 1.
    kv_tokens: int | None = None  # Capacity of the KV cache, in tokens.
    block_tokens: int | None = None  # Tokens per block of the KV cache.
    slots: int | None = None  # Maximum number of requests that the engine runs at once.
    asleep: bool = False  # The engine is sleeping, draining or scaling: it serves no request now.
    adapters: frozenset[str] = frozenset()  # LoRA adapters of running requests.
    adapter_slots: int | None = None  # Maximum number of adapters in the GPU's memory at once.
    # The fields after the start time are totals. A total that decreases shows that the engine was
    # restarted.
    started_at: float | None = None  # Start of the engine's process, in seconds since the epoch.
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    cache_queries: int | None = None  # Prompt tokens that were looked up in the prefix cache.
    cache_hits: int | None = None  # Prompt tokens that were found in the prefix cache.
    preemptions: int | None = None


NO_SIGNALS = Signals()
