"""The world a simulation runs in: the fleet, what routers learn of it, what goes wrong.

Plain values, checked when they are made. Must never: hold state of a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Final, Literal

from router.config.model import Config
from router.emulator.core.core_config import CoreConfig
from router.emulator.core.timing import Timing

NETWORK_S: Final = 0.0005  # of a machine room
_64_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Polls:
    """What happens to the polls of engines. How often they come, and when their figures are too
    old, is in the configuration (`polling`)."""

    jitter: float = 0.2  # share of the interval by which a poll may come early or late
    delay_s: float = 0.005  # from the engine's figures to the router's knowing them
    loss: float = 0.0  # share of polls that bring nothing

    def __post_init__(self) -> None:
        if not (0.0 <= self.jitter < 1.0 and 0.0 <= self.loss <= 1.0):
            raise ValueError("the jitter of the polls is a share below 1, their loss one up to 1")
        if not 0.0 <= self.delay_s < float("inf"):
            raise ValueError("polls take 0 or more seconds")


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
class Group:
    """Equal replicas."""

    replicas: int
    core: CoreConfig  # its block_size is the traffic's block_tokens; it tells no single tokens
    timing: Timing
    models: tuple[str, ...] | None = None  # that they serve; None: any
    weight: float = 1.0  # as `replicas[].weight`, and so are the others
    max_inflight: int | None = None
    zone: str = ""
    node: str = ""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError("a group has at least one replica")
        if self.models is not None and not self.models:
            raise ValueError("a group serves at least one model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fleet, its routers and their configuration.

    Of the configuration count the sections that decide about requests; its `replicas` do not: the
    fleet is `groups`. Classes and keys are the arrivals' `priority` and `tenant`.
    """

    groups: tuple[Group, ...]  # the numbers of replicas count through them
    config: Config = field(default_factory=Config)
    routers: int = 1  # in front of the same fleet; requests are dealt out at random
    shared: bool = False  # the routers share all they know: they are one
    network_s: float = NETWORK_S  # one way, between router and engine
    polls: Polls = Polls()
    faults: tuple[Fault, ...] = ()
    straggling: Straggling = Straggling()
    sample_s: float = 1.0  # between two looks at everybody's load for the report; 0: never
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError("a fleet has at least one group of replicas")
        if len({group.core.block_size for group in self.groups}) > 1:
            raise ValueError("the engines of one fleet have blocks of one size")
        if self.routers < 1:
            raise ValueError("there is at least one router")
        if not 0.0 <= self.network_s < float("inf"):
            raise ValueError("the network takes 0 or more seconds")
        if not self.sample_s >= 0.0:
            raise ValueError("sample_s is 0 or more seconds")
        if any(not 0 <= fault.replica < self.replicas for fault in self.faults):
            raise ValueError("a fault names a replica that does not exist")

    @property
    def replicas(self) -> int:
        """Of all groups."""
        return sum(group.replicas for group in self.groups)

    @property
    def core(self) -> CoreConfig:
        """The sizes of the first group's engines; `block_size` is the same in all groups."""
        return self.groups[0].core

    @property
    def timing(self) -> Timing:
        """The timing of the first group's engines."""
        return self.groups[0].timing


def equal(
    replicas: int, core: CoreConfig, timing: Timing, models: tuple[str, ...] | None = None
) -> tuple[Group, ...]:
    """A fleet of equal replicas: one group."""
    return (Group(replicas=replicas, core=core, timing=timing, models=models),)


def resized(scenario: Scenario, replicas: int) -> Scenario:
    """The same with so many replicas in its only group. Raises ValueError if there are several."""
    (group,) = scenario.groups
    return replace(scenario, groups=(replace(group, replicas=replicas),))
