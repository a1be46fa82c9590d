"""The sizes of one engine core.

A file of its own, because `request.py` is compiled: a frozen dataclass that mypyc has compiled
cannot be unpickled, and a simulation's process gets its scenario pickled.
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
    reserve_output: bool = False  # True: all KV is promised at admission, nobody is preempted
    preempt_advantage: int | None = None  # in priority numbers; None: newcomers displace nobody
    kv_events: bool = False  # True: `EngineCore.kv_log` tells what the prefix cache holds
    leap: bool = False  # True: decode steps that change nothing but counters are one event

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        if self.num_blocks < 1 or self.block_size < 1:
            raise ValueError("num_blocks and block_size must be at least 1")
        if self.leap and self.token_events:
            raise ValueError("to leap is to report no token: it needs token_events off")
