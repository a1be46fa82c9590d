"""Fleets and traffic of the simulated benches: llm-d's workload, and the matrix's scenarios.

A scenario's rate is a share of the rate at which its fleet saturates without any cache hit
(`bench.fleet.capacity`). Must never depend on a policy.

`Measured`: a task that measures one scenario with one seed in a separate process.

Must never depend on what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Generic, Literal, TextIO, TypeVar

from bench.fleet import capacity
from bench.fleet.simulated import oracle
from router.config.varied import varied
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.simulator.scenario import Fault, Polls, Scenario, equal, resized
from router.lab.simulator.traffic import Arrival, Traffic
from router.lab.simulator.workloads import (
    Chat,
    Mix,
    PowerUser,
    Shared,
    Stragglers,
    Unique,
    new_blocks,
)

BLOCK_TOKENS = 128
# The benches compare the choice of the replica, so the router's queue is off. All other settings
# have their defaults.
CONFIG = varied(queue={"enabled": False})


def routed(fleet: Scenario, policy: str) -> Scenario:
    """Return the same scenario with another routing policy. The oracle gets its `BASE` policy."""
    name = oracle.BASE if policy == oracle.NAME else policy
    return replace(fleet, config=varied(fleet.config, routing={"policy": name}))


def core(kv_tokens: int) -> CoreConfig:
    return CoreConfig(num_blocks=kv_tokens // BLOCK_TOKENS, block_size=BLOCK_TOKENS)


def cold_rate(fleet: Scenario, sizes: Sequence[tuple[float, int]]) -> float:
    """Requests/s of these lengths at which the fleet saturates without a cache hit."""
    return sum(
        capacity.saturation(
            capacity.Engine(
                group.timing,
                group.core.num_blocks * group.core.block_size,
                group.core.max_num_seqs,
            ),
            group.replicas,
            sizes,
        )
        for group in fleet.groups
    )


# -- llm-d's benchmark ----------------------------------------------------------------------------

# 8 pods of 2 x H100 with Qwen-32B (32.8e9 parameters). The timing is scaled by the parameters per
# GPU from a measured profile: 4 x H100 with Llama-2-70B (69.0e9 parameters).
LLMD_TIMING = PROFILES["llama2-70b-h100x4"].scaled((32.8e9 / 2) / (69.0e9 / 4))
LLMD_KV_TOKENS = 307_328
LLMD = Scenario(groups=equal(8, core(LLMD_KV_TOKENS), LLMD_TIMING), config=CONFIG)


@dataclass(slots=True, kw_only=True)
class Warmed(Shared):
    """One request per group of users in the first `warm_s` seconds; then traffic as in `Shared`."""

    warm_s: float

    def __iter__(self) -> Iterator[Arrival]:
        rng = self._rng()
        size = self.block_tokens
        tokens = self.prefix_tokens + self.question_tokens
        own = tokens // size - self.prefix_tokens // size
        prefixes = [new_blocks(rng, self.prefix_tokens // size) for _ in range(self.groups)]

        def asks(number: int, at: float, group: int, user: int) -> Arrival:
            blocks = prefixes[group] + new_blocks(rng, own)
            session = f"{group}.{user}"
            return Arrival(number, at, tokens, self.output_tokens, blocks, session=session)

        for number, group in enumerate(rng.sample(range(self.groups), self.groups)):
            yield asks(number, self.warm_s * number / self.groups, group, 0)
        for number, at in enumerate(self._times(rng, self.rate), self.groups):
            group, user = int(rng.random() * self.groups), int(rng.random() * self.users)
            yield asks(number, self.warm_s + at, group, user)


# -- the matrix's scenarios -----------------------------------------------------------------------

# Eight replicas of an 8B model on one A100. llm-d's prefixes need 73 % of all KV caches.
FLEET = Scenario(groups=equal(8, core(154_112), PROFILES["realistic"]), config=CONFIG)
# A fleet with the same capacity: four fast replicas and four that are half as fast.
TWO_SPEEDS = Scenario(
    groups=(
        *equal(4, core(154_112), PROFILES["realistic"].scaled(0.75)),
        *equal(4, core(154_112), PROFILES["realistic"].scaled(1.5)),
    ),
    config=CONFIG,
)
SURGE_S = 60.0  # maximum length of the overload in `surge`, in seconds
WARM = 0.2  # share of a scenario's time, at its start, in which no request is counted
_LAW = 4000  # number of requests from which a workload's lengths are estimated

Make = Callable[[float, float, int], Traffic]  # (requests/s, seconds, seed) -> the traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One scenario of the matrix."""

    name: str
    unit: str  # second line of the column's head, below the name
    words: str
    make: Make  # creates the traffic; must be picklable
    load: float  # requests/s as a share of `cold_rate`
    requests: int  # approximate number of requests, including the warm-up
    fleet: Scenario = FLEET
    # Kind of the fault, and its start and end as shares of the run. "slow" and "kill" affect the
    # first replica; "restart" kills and restarts every replica, one after the other.
    fault: tuple[Literal["slow", "kill", "restart"], float, float] | None = None
    rate: float = field(init=False)  # requests/s, computed from `load`

    def __post_init__(self) -> None:
        law = islice(_turns(self.make(100.0, _LAW / 100.0, 0)), _LAW)
        sizes = [(float(one.prompt_tokens), one.output_tokens) for one in law]
        object.__setattr__(self, "rate", self.load * cold_rate(self.fleet, sizes))

    @property
    def seconds(self) -> float:
        """Length of the traffic in seconds."""
        return self.requests / self.rate

    def scenario(self, seed: int) -> Scenario:
        faults: tuple[Fault, ...] = ()
        if self.fault is not None:
            kind, begins, ends = self.fault
            at, until = begins * self.seconds, ends * self.seconds
            if kind == "restart":
                faults = tuple(_restarts(self.fleet.replicas, at, until))
            else:
                faults = (Fault(at=at, replica=0, kind=kind, until=until, factor=5.0),)
        return replace(self.fleet, faults=faults, seed=seed)

    def traffic(self, seed: int) -> Traffic:
        return self.make(self.rate, self.seconds, seed)


def _restarts(replicas: int, at: float, until: float) -> Iterator[Fault]:
    """Yield one restart per replica, one after the other. Each is down for 2/3 of its turn."""
    turn = (until - at) / replicas
    for number in range(replicas):
        begin = at + number * turn
        yield Fault(at=begin, replica=number, kind="kill", until=begin + turn * 2.0 / 3.0)


def _turns(traffic: Traffic) -> Iterator[Arrival]:
    """Yield all requests; the turns of a conversation follow each other directly."""
    for arrival in traffic:
        turn: Arrival | None = arrival
        while turn is not None:
            yield turn
            turn = next(iter(traffic.follow(turn, turn.at)), None)


def shared(rate: float, seconds: float, seed: int, **options: Any) -> Shared:
    options = {"output_tokens": 200, **options}
    return Shared(rate=rate, duration_s=seconds, seed=seed, **options)


def chat(rate: float, seconds: float, seed: int) -> Chat:
    return Chat(rate=rate, duration_s=seconds, seed=seed)


def unique(rate: float, seconds: float, seed: int) -> Unique:
    return Unique(rate=rate, duration_s=seconds, seed=seed)


def bursty(rate: float, seconds: float, seed: int) -> Unique:
    return Unique(rate=rate, duration_s=seconds, seed=seed, cv=4.0)


def surge(rate: float, seconds: float, seed: int) -> Mix:
    """Unique prompts at 70 % of the saturation rate, and for up to a minute at 120 %."""
    more = Unique(
        rate=rate * (1.2 / 0.7 - 1.0),
        duration_s=min(SURGE_S, 0.3 * seconds),
        begins_s=0.4 * seconds,
        seed=seed + 1_000_000,
    )
    return Mix(unique(rate, seconds, seed), more)


def stragglers(rate: float, seconds: float, seed: int) -> Stragglers:
    return Stragglers(rate=rate, duration_s=seconds, seed=seed)


def power_user(rate: float, seconds: float, seed: int) -> Mix:
    """Unique prompts; for a fifth of the time, one user sends 1.5 times as many requests as all
    others.
    """
    burst = PowerUser(rate=1.5 * rate, duration_s=0.2 * seconds, begins_s=0.4 * seconds, seed=seed)
    return Mix(unique(rate, seconds, seed), burst)


def worlds(requests: int) -> list[World]:
    """All scenarios with about this number of requests each; four times as many for the large
    fleet.
    """
    blind = replace(FLEET, routers=4)
    large = resized(FLEET, 96)
    giant = partial(shared, groups=1, question_tokens=250)
    many = partial(shared, groups=150 * 12)
    world = partial(World, requests=requests)
    return [
        world(
            name="shared",
            unit="70 %",
            words="150 prefixes of 6,000 tokens, questions of 1,200, answers of 200",
            make=shared,
            load=0.7,
        ),
        world(name="shared", unit="130 %", words="the same in overload", make=shared, load=1.3),
        world(
            name="chat",
            unit="70 %",
            words="conversations of four turns in the mean, ten seconds to think",
            make=chat,
            load=0.7,
        ),
        world(name="chat", unit="130 %", words="the same in overload", make=chat, load=1.3),
        world(
            name="unique",
            unit="70 %",
            words="no two prompts share anything; 3,000 tokens, lognormal",
            make=unique,
            load=0.7,
        ),
        world(name="unique", unit="95 %", words="the same near saturation", make=unique, load=0.95),
        world(
            name="power",
            unit="user",
            words="unique prompts at 50 %, and for a fifth of the time one user's 150 % of that, "
            "all about one document of 4,000 tokens",
            make=power_user,
            load=0.5,
        ),
        world(
            name="one",
            unit="prompt",
            words="one system prompt of 6,000 tokens for all, 250 of their own, at 10 %",
            make=giant,
            load=0.1,
        ),
        world(
            name="long",
            unit="prompts",
            words="1,000 tokens, one prompt in twenty ten times as long, at 70 %",
            make=stragglers,
            load=0.7,
        ),
        world(
            name="bursts",
            unit="unique",
            words="unique prompts at 70 %, times between arrivals with a coefficient of variation "
            "of 4",
            make=bursty,
            load=0.7,
        ),
        world(
            name="surge",
            unit="120 %",
            words="unique prompts at 70 %, and at 120 % for a minute",
            make=surge,
            load=0.7,
        ),
        world(
            name="two",
            unit="speeds",
            words="unique prompts at 70 % of the capacity of four replicas and four half as fast",
            make=unique,
            load=0.7,
            fleet=TWO_SPEEDS,
        ),
        world(
            name="two speeds",
            unit="shared",
            words="shared prefixes at 70 % on the same fleet",
            make=shared,
            load=0.7,
            fleet=TWO_SPEEDS,
        ),
        world(
            name="restarts",
            unit="rolling",
            words="shared prefixes at 50 %, every replica restarts with an empty cache, one after "
            "the other",
            make=shared,
            load=0.5,
            fault=("restart", 0.3, 0.9),
        ),
        world(
            name="slow",
            unit="replica",
            words="shared prefixes at 70 %, one replica five times as slow for a third of the time",
            make=shared,
            load=0.7,
            fault=("slow", 0.4, 0.73),
        ),
        world(
            name="killed",
            unit="replica",
            words="shared prefixes at 70 %, one replica dies and comes back empty",
            make=shared,
            load=0.7,
            fault=("kill", 0.4, 0.6),
        ),
        world(
            name="4 blind",
            unit="chat",
            words="chat at 70 % through 4 routers that share nothing",
            make=chat,
            load=0.7,
            fleet=blind,
        ),
        world(
            name="4 that",
            unit="share",
            words="the same through 4 routers that share all they know",
            make=chat,
            load=0.7,
            fleet=replace(blind, shared=True),
        ),
        world(
            name="4 blind",
            unit="unique",
            words="unique prompts at 70 % through 4 routers that share nothing",
            make=unique,
            load=0.7,
            fleet=blind,
        ),
        world(
            name="stale",
            unit="10 s",
            words="the same, polled every ten seconds",
            make=unique,
            load=0.7,
            fleet=replace(
                blind, config=varied(CONFIG, polling={"interval_s": 10.0, "stale_s": 30.0})
            ),
        ),
        world(
            name="no",
            unit="polls",
            words="the same, and every poll is lost",
            make=unique,
            load=0.7,
            fleet=replace(blind, polls=Polls(loss=1.0)),
        ),
        world(
            name="large",
            unit="fleet",
            words="96 replicas and 1,800 shared prefixes at 70 %: a policy sees 64 and the holders",
            make=many,
            load=0.7,
            fleet=large,
            requests=4 * requests,
        ),
    ]


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Measured(Generic[R]):
    """A task for `run_all`. `measure` must be picklable, such as a function of a module."""

    world: World
    seed: int
    measure: Callable[[World, int], R]  # simulates the scenario with the seed

    @property
    def policy(self) -> str:
        """The label of the task in error messages."""
        return self.world.name

    @property
    def scenario(self) -> Scenario:
        return self.world.scenario(self.seed)

    def run(self, line: TextIO | None = None) -> R:
        """Simulate and return the result. `line` is not used. Raises the errors of `measure`."""
        return self.measure(self.world, self.seed)
