"""The configuration of one engine core.

This class has a file of its own that is not compiled: a frozen dataclass compiled by mypyc cannot
be unpickled. The configuration is pickled when a simulation runs in another process.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """The configuration of one engine core. The sizes have vLLM's names."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    num_blocks: int = 8192
    block_size: int = 16
    priority_scheduling: bool = False
    prefix_caching: bool = True
    token_events: bool = True  # False: the core reports only first tokens and ends of requests
    # True: all KV blocks of a request are reserved at its admission, and no request is preempted.
    reserve_output: bool = False
    # A new request may preempt running requests whose priority numbers are higher than its own by
    # more than this. None: a new request preempts no other request.
    preempt_advantage: int | None = None
    kv_events: bool = False  # True: `EngineCore.kv_log` records changes of the prefix cache
    # True: consecutive decode steps are one event while they change only counters.
    leap: bool = False

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        if self.num_blocks < 1 or self.block_size < 1:
            raise ValueError("num_blocks and block_size must be at least 1")
        if self.leap and self.token_events:
            raise ValueError("to leap is to report no token: it needs token_events off")
