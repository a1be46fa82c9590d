"""The world a simulation runs in: the fleet, what routers learn of it, what goes wrong.

Plain values, checked when they are made. Must never: hold state of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, Literal

from router.config.model import Classes, Health, Hedging, Queue
from router.emulator.core.core_config import CoreConfig
from router.emulator.core.timing import Timing

_64_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Polls:
    """How routers hear of engines: each one's figures, every so often, late, sometimes never."""

    interval_s: float = 1.0  # from what one brought to the beginning of the next; 0: never
    jitter: float = 0.2  # share of the interval by which a poll may come early or late
    delay_s: float = 0.005  # from the engine's figures to the router's knowing them
    loss: float = 0.0  # share of polls that bring nothing
    stale_s: float = 10.0  # older figures count as unknown

    def __post_init__(self) -> None:
        if not 0.0 <= self.interval_s < float("inf"):
            raise ValueError("the interval of the polls is 0 or more seconds")
        if not (0.0 <= self.jitter < 1.0 and 0.0 <= self.loss <= 1.0):
            raise ValueError("the jitter of the polls is a share below 1, their loss one up to 1")
        if not (0.0 <= self.delay_s < float("inf") and self.stale_s > 0.0):
            raise ValueError("polls take 0 or more seconds, and are stale after more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens to one replica at `at`, until `until` (seconds).

    slow: every step that begins takes `factor` times as long. freeze: the engine's clock stands
    still; it still takes requests, and answers polls and probes. kill: what it holds is lost and
    nobody can connect; it comes back with an empty cache.
    """

    at: float
    replica: int  # its number, 0 is the first
    kind: Literal["slow", "freeze", "kill"]
    until: float  # of "kill" it may be infinite
    factor: float = 10.0  # of "slow"

    def __post_init__(self) -> None:
        if self.kind not in ("slow", "freeze", "kill"):
            raise ValueError(f"no such fault: {self.kind!r}")
        if not 0.0 <= self.at < self.until:
            raise ValueError("a fault begins at 0 or later, and ends after it has begun")
        if not isfinite(self.at) or (self.kind == "freeze" and not isfinite(self.until)):
            raise ValueError("a freeze ends: what is frozen for ever is dead")
        if not 0.0 < self.factor < float("inf"):
            raise ValueError("a slow replica is so by a factor above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggling:
    """Attempts that are slow for no fault of their replica: a share of all, each drawn anew.

    One that straggles reaches its engine's queue later, by (`factor` - 1) times what its prefill
    takes there alone. Which ones do depends on the seed, the request and the attempt's index, and
    on nothing that a policy does: two runs of one traffic have the same first attempts straggle.
    """

    share: float = 0.0
    factor: float = 10.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError("a share of the attempts straggles: 0 to 1")
        if not 1.0 <= self.factor < float("inf"):
            raise ValueError("a straggler is slower by a factor of 1 or more")

    def strikes(self, seed: int, request: int, attempt: int) -> bool:
        """Whether this attempt of this request straggles."""
        if not self.share:
            return False
        # SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a generator made anew would take longer
        # than all the rest of an attempt.
        value = (seed * 0x9E3779B97F4A7C15 + request * 64 + attempt + 1) * 0xD1342543DE82EF95
        value &= _64_BITS
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _64_BITS
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _64_BITS
        return (value ^ value >> 31) < self.share * 2.0**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fleet, its routers and their rules."""

    replicas: int
    core: CoreConfig  # its block_size is the traffic's block_tokens; it tells no single tokens
    timing: Timing
    policy: str = "kv_aware"
    options: Mapping[str, Any] = field(default_factory=dict)
    routers: int = 1  # in front of the same fleet; requests are dealt out at random
    shared: bool = False  # the routers share all they know: they are one
    network_s: float = 0.0005  # one way, between router and engine
    polls: Polls = Polls()
    faults: tuple[Fault, ...] = ()
    straggling: Straggling = Straggling()
    hedging: Hedging = field(
        default_factory=Hedging
    )  # as the proxy's own; classes are the arrivals' `priority`
    # As the proxy's own; keys are the arrivals' `tenant`.
    queue: Queue = field(default_factory=lambda: Queue(enabled=False))
    classes: Classes = field(default_factory=Classes)  # as the proxy's own
    # As `priority.steps`: a user's next request is less urgent while others of his are pending.
    # Engines are told of it if they go by it (`core.priority_scheduling`).
    steps: bool = True
    health: Health = field(default_factory=Health)  # when a replica is suspect, ejected, warm again
    attempts: int = 3  # per request, as `retry.attempts`
    first_token_s: float = 300.0  # as `timeouts.first_token`; inf: however long it takes
    whole_s: float = 1800.0  # as `timeouts.whole`, of what is not streamed; or inf
    token_gap_s: float = 60.0  # as `timeouts.token_gap`; only a frozen replica makes a gap
    prefix_entries: int = 1_000_000  # (block, replica) pairs that a router remembers
    prefix_blocks: int = 512  # leading blocks a router looks at, as `prefix.blocks`
    sample: int = 64  # candidates a policy sees of a larger fleet, as `routing.sample`
    sample_s: float = 1.0  # between two looks at everybody's load for the report; 0: never
    seed: int = 1

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError("a fleet has at least one replica")
        if self.routers < 1:
            raise ValueError("there is at least one router")
        if min(self.attempts, self.prefix_entries, self.prefix_blocks, self.sample) < 1:
            raise ValueError("attempts, prefix_entries, prefix_blocks and sample are 1 or more")
        if not 0.0 <= self.network_s < float("inf"):
            raise ValueError("the network takes 0 or more seconds")
        if not min(self.first_token_s, self.whole_s, self.token_gap_s) > 0.0 <= self.sample_s:
            raise ValueError("timeouts are above 0 seconds, sample_s is 0 or more")
        if any(not 0 <= fault.replica < self.replicas for fault in self.faults):
            raise ValueError("a fault names a replica that does not exist")
