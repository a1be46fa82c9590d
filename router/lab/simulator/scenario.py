"""The setup of a simulation: the fleet, the routers, the polls, and the faults.

The values are checked when an object is created. Must never: hold the state of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Final, Literal

from router.config.keys import KeyLine
from router.config.model import Config
from router.lab.emulator.core.timing import CoreConfig, Timing

NETWORK_S: Final = 0.0005  # one-way network delay in seconds, typical within one data centre
_64_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Polls:
    """Timing and loss of the polls of the engines' metrics.

    The interval between polls and the age limit of their values are in the configuration
    (`polling`).
    """

    jitter: float = 0.2  # fraction of the interval by which a poll may be early or late
    delay_s: float = 0.005  # seconds from the read of an engine's metrics to the router's update
    loss: float = 0.0  # fraction of the polls that fail

    def __post_init__(self) -> None:
        if not (0.0 <= self.jitter < 1.0 and 0.0 <= self.loss <= 1.0):
            raise ValueError("polls: jitter must be from 0 to below 1, loss from 0 to 1")
        if not 0.0 <= self.delay_s < float("inf"):
            raise ValueError("polls: delay_s must be 0 or more seconds, and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one replica from `at` to `until` (seconds).

    - slow: every step that begins during the fault takes `factor` times as long.
    - freeze: the engine makes no progress. It still accepts requests and answers polls and probes.
    - kill: all requests of the engine are lost and connections fail. The engine restarts at the end
      of the fault, with an empty cache.
    - drain: the routers send no new requests to the replica, and its requests go on.
    """

    at: float
    replica: int  # the replica's number, from 0
    kind: Literal["slow", "freeze", "kill", "drain"]
    until: float  # infinity is allowed, except for "freeze"
    factor: float = 10.0  # factor on the duration of steps; only for "slow"

    def __post_init__(self) -> None:
        if self.kind not in ("slow", "freeze", "kill", "drain"):
            raise ValueError(f"unknown fault {self.kind!r}; allowed: slow, freeze, kill, drain")
        if not 0.0 <= self.at < self.until:
            raise ValueError("a fault must begin at 0 s or later and end after its beginning")
        if not isfinite(self.at) or (self.kind == "freeze" and not isfinite(self.until)):
            raise ValueError("a freeze must end; use kill for a replica that never recovers")
        if not 0.0 < self.factor < float("inf"):
            raise ValueError("the factor of a fault must be above 0, and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A request that a client sends directly to one replica, without a router, at `at` seconds.

    The request is queued, prefilled and decoded like any other request. Its prompt is in no cache.
    So a long prompt delays all requests behind it, and many such requests fill the KV cache. A
    router sees the request only in the engine's metrics.
    """

    at: float
    replica: int  # the replica's number, from 0
    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.at < float("inf"):
            raise ValueError("a neighbour's request must arrive at 0 s or later")
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a neighbour's request must have at least 1 token of each kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggling:
    """Makes a random fraction of the attempts slow, at whichever replica they run.

    A slow attempt reaches its engine's queue later, by (`factor` - 1) times the duration of its
    prefill on an idle engine. Until then it does not use the engine. The selection depends only on
    the seed, the request's number and the attempt's index. So the same first attempts are slow with
    every policy.
    """

    share: float = 0.0
    factor: float = 10.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError("straggling: share must be from 0 to 1")
        if not 1.0 <= self.factor < float("inf"):
            raise ValueError("straggling: factor must be 1 or more, and finite")

    def selects(self, seed: int, request: int, attempt: int) -> bool:
        """Whether this attempt of this request is slow."""
        if not self.share:
            return False
        # The hash is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). The creation of a `Random`
        # for each attempt would take longer than everything else that is done for the attempt.
        value = (seed * 0x9E3779B97F4A7C15 + request * 64 + attempt + 1) * 0xD1342543DE82EF95
        value &= _64_BITS
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _64_BITS
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _64_BITS
        return (value ^ value >> 31) < self.share * 2.0**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of identical replicas."""

    replicas: int
    # `block_size` must be the traffic's `block_tokens`. The simulation sets `token_events` to
    # False, and `kv_events` to `prefix.exact` of the configuration.
    core: CoreConfig
    timing: Timing
    models: tuple[str, ...] | None = None  # the served models; None: all models
    # The fields below have the same meaning as in the configuration's `replicas`.
    weight: float = 1.0
    max_inflight: int | None = None
    max_model_len: int | None = None
    zone: str = ""
    node: str = ""
    region: str = ""
    pool: str = ""
    # One-way delay between the routers and these engines; None: `Scenario.network_s`.
    network_s: float | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError("a group must have at least one replica")
        if self.models is not None and not self.models:
            raise ValueError("a group must serve at least one model")
        if self.network_s is not None and not 0.0 <= self.network_s < float("inf"):
            raise ValueError("network_s must be 0 or more seconds, and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """The channel by which the routers tell each other of their requests (`router/share`)."""

    interval_s: float = 0.02  # time between two messages of a router
    delay_s: float = 0.001  # from the sender to each other router
    loss: float = 0.0  # probability that a message does not reach one of the routers

    def __post_init__(self) -> None:
        if not 0.0 < self.interval_s < float("inf"):
            raise ValueError("interval_s must be more than 0 seconds, and finite")
        if not 0.0 <= self.delay_s < float("inf"):
            raise ValueError("delay_s must be 0 or more seconds, and finite")
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError("loss must be from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fleet, its routers and their configuration.

    Only the sections of `config` that affect decisions about requests are used. `config.replicas`
    is ignored, because `groups` describes the fleet. The priority class and the tenant of a request
    are `Arrival.priority` and `Arrival.tenant`.
    """

    groups: tuple[Group, ...]  # replicas are numbered consecutively over all groups
    config: Config = field(default_factory=Config)
    # The entry of the keys file for each tenant that has a key, by `Arrival.tenant`.
    keys: Mapping[str, KeyLine] = field(default_factory=dict)
    routers: int = 1  # number of routers of the fleet
    # Number of routers that each tenant uses, at random; 0: all. The tenants are dealt to the
    # routers in turn, as with a router in each pod of an application.
    routers_per_tenant: int = 0
    shared: bool = False  # True: the routers share all state, so a single router is simulated
    channel: Channel | None = None  # None: routers tell each other nothing
    # One-way delay between router and engine, in seconds. A group can have a delay of its own.
    network_s: float = NETWORK_S
    polls: Polls = Polls()
    faults: tuple[Fault, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    straggling: Straggling = Straggling()
    sample_s: float = 1.0  # seconds between two samples of the loads for a `LoadRecorder`; 0: none
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError("a fleet must have at least one group of replicas")
        if len({group.core.block_size for group in self.groups}) > 1:
            raise ValueError("all engines of a fleet must have the same block_size")
        if self.routers < 1:
            raise ValueError("routers must be at least 1")
        if not 0 <= self.routers_per_tenant <= self.routers:
            raise ValueError("routers_per_tenant must be from 0 to the number of routers")
        if not 0.0 <= self.network_s < float("inf"):
            raise ValueError("network_s must be 0 or more seconds, and finite")
        if not self.sample_s >= 0.0:
            raise ValueError("sample_s must be 0 or more seconds")
        if any(not 0 <= fault.replica < self.replicas for fault in self.faults):
            raise ValueError("a fault names a replica that does not exist")
        if any(not 0 <= one.replica < self.replicas for one in self.neighbours):
            raise ValueError("a neighbour names a replica that does not exist")

    @property
    def replicas(self) -> int:
        """The number of replicas in all groups."""
        return sum(group.replicas for group in self.groups)

    def network_of(self, group: Group) -> float:
        """The one-way delay between the routers and the engines of a group, in seconds."""
        return self.network_s if group.network_s is None else group.network_s

    def on_node(self, node: str) -> list[int]:
        """The numbers of the replicas on this node."""
        nodes = [group.node for group in self.groups for _ in range(group.replicas)]
        return [number for number, name in enumerate(nodes) if name == node]

    @property
    def core(self) -> CoreConfig:
        """The core configuration of the first group; `block_size` is the same in all groups."""
        return self.groups[0].core

    @property
    def timing(self) -> Timing:
        """The timing of the first group's engines."""
        return self.groups[0].timing


def equal(
    replicas: int, core: CoreConfig, timing: Timing, models: tuple[str, ...] | None = None
) -> tuple[Group, ...]:
    """The groups of a fleet of identical replicas, which is one group."""
    return (Group(replicas=replicas, core=core, timing=timing, models=models),)


def resized(scenario: Scenario, replicas: int) -> Scenario:
    """A copy of a scenario, with `replicas` replicas in its only group.

    Raises ValueError if the scenario has several groups.
    """
    (group,) = scenario.groups
    return replace(scenario, groups=(replace(group, replicas=replicas),))
