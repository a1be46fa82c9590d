"""The world a simulation runs in: the fleet, what routers learn of it, what goes wrong.

Plain values, checked when they are made. Must never: hold state of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from router.emulator.request import CoreConfig
from router.emulator.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Polls:
    """How routers hear of engines: each one's figures, every so often, late, sometimes never."""

    interval_s: float = 1.0  # 0: never
    jitter: float = 0.1  # share of the interval by which a poll may come early or late
    delay_s: float = 0.005  # from the engine's figures to the router's knowing them
    loss: float = 0.0  # share of polls that bring nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens to one replica at `at`, until `until` (seconds)."""

    at: float
    replica: int  # its number, 0 is the first
    kind: Literal["slow", "freeze", "kill"]  # kill: what it holds is lost; back, empty, at `until`
    until: float
    factor: float = 10.0  # of "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fleet, its routers and their rules."""

    replicas: int
    core: CoreConfig  # its block_size is the traffic's block_tokens
    timing: Timing
    policy: str = "kv_aware"
    options: Mapping[str, Any] = field(default_factory=dict)
    routers: int = 1  # in front of the same fleet; requests are dealt out at random
    shared: bool = False  # the routers share all they know: they are one
    network_s: float = 0.0005  # one way, between router and engine
    polls: Polls = Polls()
    faults: tuple[Fault, ...] = ()
    attempts: int = 3  # per request, as `retry.attempts`
    prefix_entries: int = (
        1_000_000  # (block, replica) pairs a router remembers, as `prefix.entries`
    )
    prefix_blocks: int = 512  # leading blocks a router looks at, as `prefix.blocks`
    sample: int = 64  # candidates a policy sees of a larger fleet, as `routing.sample`
    seed: int = 1

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError("a fleet has at least one replica")
        if self.routers < 1:
            raise ValueError("there is at least one router")
        if any(not 0 <= fault.replica < self.replicas for fault in self.faults):
            raise ValueError("a fault names a replica that does not exist")
