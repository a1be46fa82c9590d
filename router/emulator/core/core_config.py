"""The sizes of one engine core.

This is a separate file, because `request.py` is compiled: a frozen dataclass compiled by mypyc
cannot be unpickled, and a scenario is pickled for a simulation's process.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Sizes of one engine, under vLLM's names."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    num_blocks: int = 8192
    block_size: int = 16
    priority_scheduling: bool = False
    prefix_caching: bool = True
    token_events: bool = True  # False: only first tokens and ends are reported
    reserve_output: bool = False  # True: all KV is reserved at admission, and nothing is preempted
    # Least difference of priority numbers; None: new requests preempt none.
    preempt_advantage: int | None = None
    kv_events: bool = False  # True: `EngineCore.kv_log` records changes of the prefix cache
    leap: bool = False  # True: consecutive decode steps that change only counters are one event

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        if self.num_blocks < 1 or self.block_size < 1:
            raise ValueError("num_blocks and block_size must be at least 1")
        if self.leap and self.token_events:
            raise ValueError("to leap is to report no token: it needs token_events off")
