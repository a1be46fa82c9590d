"""The cases in which hedging is judged: the causes of late requests, and the goal of each case.

In all cases except *late*, what is slow occupies its engine, so that other requests wait:

- *calm*: nothing is slow;
- *late*: one attempt in twenty reaches its engine late; the engine is free meanwhile;
- *steps*: now and then, every step of a replica takes ten times as long for 15 s;
- *node*: like *steps*, but for all four replicas of a node together;
- *neighbour*: another client sends a prompt of 32,000 tokens straight to a replica;
- *kv*: another client fills the KV cache of a replica, so that requests wait for blocks and are
  preempted; the caches are smaller in this case;
- *frozen*: now and then, a replica makes no progress for 20 s;
- *full*: like *steps*, but at 0.9 of the saturation rate;
- *slow*: like *steps*, and the whole fleet becomes three times as slow for a while;
- *mixed*: like *steps*, and every second replica takes three times as long for everything.

`share` is the share of each replica's (or node's) time in which it is slow. With the same seed,
every hedging configuration gets the same requests and the same slow times. Must never depend on a
hedging policy.

`Prefixed`: the fleet and the traffic of the goals: nodes of four replicas, and prompts with shared
prefixes.

Each replica is an 8B model on one A100. All settings have their defaults, so the queue is enabled.
Two thirds of a prompt are the prefix of its group. So the replica that has the prefix prefills a
third of the prompt, and another replica usually prefills all of it for a copy. Every fifth request
is urgent; both classes use the same prefixes and lengths.

Load is a share of the rate at which the fleet saturates if every prefix is cached
(`bench.fleet.capacity`). Must never depend on whether hedging is enabled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile
from random import Random
from typing import Literal

from bench.fleet import capacity
from bench.fleet.simulated.worlds import BLOCK_TOKENS, core
from bench.hedging.simulated.world import Spell, Task, spells
from router.config.model import Config, Hedging
from router.config.varied import varied
from router.lab.emulator.core.timing import PROFILES
from router.lab.simulator.scenario import Fault, Group, Neighbour, Scenario, Straggling
from router.lab.simulator.traffic import Arrival
from router.lab.simulator.workloads import Lengths, Synthetic, new_blocks

NODES, PER_NODE = 6, 4
GROUPS_EACH = 12  # number of prefixes per replica
KV_TOKENS = 154_112  # KV cache of each replica, in tokens
URGENT, OTHER = "high", "normal"
URGENT_SHARE = 0.2
TIMING = PROFILES["realistic"]
PREFIX = Lengths(2000.0, 0.4, 6000)
QUESTION = Lengths(1000.0, 0.6, 5000)
OUTPUT = Lengths(200.0, 0.6, 1000)
_LAW = 8000  # number of requests from which the workload's lengths are estimated


def fleet(hedging: Hedging, nodes: int = NODES, kv_tokens: int = KV_TOKENS) -> Scenario:
    # `sample_s=0` turns off the samples of replica loads, which this bench does not use.
    return Scenario(
        groups=tuple(
            Group(replicas=PER_NODE, core=core(kv_tokens), timing=TIMING, node=node_name(number))
            for number in range(nodes)
        ),
        config=varied(Config(), hedging=hedging),
        sample_s=0.0,
    )


def node_name(number: int) -> str:
    return f"node-{number}"


@dataclass(slots=True, kw_only=True)
class Prefixed(Synthetic):
    """Traffic in which each prompt is the prefix of a random group and a new question."""

    groups: int

    def __iter__(self) -> Iterator[Arrival]:
        rng = self._rng()
        size = self.block_tokens
        prefixes = [new_blocks(rng, max(1, PREFIX.draw(rng) // size)) for _ in range(self.groups)]
        for number, at in enumerate(self._times(rng, self.rate)):
            group = int(rng.random() * self.groups)
            prefix = prefixes[group]
            question = QUESTION.draw(rng)
            yield Arrival(
                number,
                at,
                len(prefix) * size + question,
                OUTPUT.draw(rng),
                prefix + new_blocks(rng, question // size),
                tenant=f"customer {group}",
                priority=URGENT if rng.random() < URGENT_SHARE else OTHER,
            )


def traffic(rate: float, until_s: float, seed: int, replicas: int) -> Prefixed:
    return Prefixed(rate=rate, duration_s=until_s, seed=seed, groups=GROUPS_EACH * replicas)


def saturation(replicas: int, kv_tokens: int = KV_TOKENS) -> float:
    """Requests/s at which the fleet saturates if every prefix is cached."""
    sizes, cached = [], []
    seen: set[int] = set()
    for number, one in enumerate(islice(traffic(1.0, float("inf"), 0, replicas), _LAW)):
        hits = len(list(takewhile(seen.__contains__, one.blocks)))
        seen.update(one.blocks)
        if number >= _LAW // 2:  # by then every group has sent a request
            sizes.append((float(one.prompt_tokens), one.output_tokens))
            cached.append(float(hits * BLOCK_TOKENS))
    engine = capacity.Engine(TIMING, kv_tokens, core(kv_tokens).max_num_seqs)
    return capacity.saturation(engine, replicas, sizes, cached)


HALF, FULL = 0.5, 0.9  # loads, as shares of the saturation rate
SHARE, FACTOR = 0.05, 10.0  # a replica is slow for 5 % of the time, and then ten times slower
STEPS_S = 15.0  # seconds for which a replica's steps are slow
FREEZE_S = 20.0
# How many times slower the fleet, or half of it, is in the cases `slow` and `mixed`.
FLEET_FACTOR = 3.0
LONG_TOKENS = 32_000  # prompt tokens of the other client in the case `neighbour`
LONG_S = TIMING.prefill_alone_s(LONG_TOKENS)
# The other client in the case `kv`: number of requests, seconds between them, tokens of each prompt
# and answer, and seconds until the cache is free again.
FILL_REQUESTS, FILL_EVERY_S, FILL_PROMPT, FILL_OUTPUT, FILL_S = 30, 0.2, 2000, 600, 60.0
SMALL_KV_TOKENS = 64_000


@dataclass(frozen=True, slots=True)
class Length:
    """Size of the fleet, length of each run, and number of seeds."""

    measured_s: float = 300.0
    seeds: int = 10
    nodes: int = NODES
    # Seconds that are not counted: batches fill, and the router learns the usual times.
    warm_s: float = 60.0
    slow_s: float = 60.0  # seconds for which the whole fleet is slow in the case `slow`

    @classmethod
    def quick(cls) -> Length:
        return cls(20.0, 1, 2, 10.0, 10.0)

    @property
    def until_s(self) -> float:
        return self.warm_s + self.measured_s

    @property
    def replicas(self) -> int:
        return self.nodes * PER_NODE


@dataclass(frozen=True, slots=True)
class Case:
    """A case and its goal for the TTFT of the classes that may be hedged, in `promise`.

    "cut": hedging lowers the p99 by 60 %. "kept": hedging does not raise the p99. "bounded": the
    slowest TTFT is at most twice the p99 of the case `calm`.
    """

    name: str
    words: str
    promise: Literal["cut", "kept", "bounded"]
    load: float = HALF
    share: float = SHARE
    kv_tokens: int = KV_TOKENS

    def rate(self, length: Length) -> float:
        """The rate of the case's traffic in requests/s."""
        return self.load * saturation(length.replicas, self.kv_tokens)

    def scenario(self, hedging: Hedging, seed: int, length: Length) -> Scenario:
        """The fleet, with the slow times of this seed."""
        nodes = fleet(hedging, length.nodes, self.kv_tokens)
        late = Straggling(share=SHARE, factor=FACTOR)
        return replace(
            nodes,
            seed=seed,
            straggling=late if self.name == "late" else Straggling(),
            faults=tuple(self._faults(nodes, seed, length)),
            neighbours=tuple(self._neighbours(seed, length)),
        )

    def _spells(self, seed: int, length: Length, places: int, length_s: float) -> list[Spell]:
        return spells(f"{self.name} {seed}", places, length.until_s, self.share, length_s)

    def _faults(self, fleet: Scenario, seed: int, length: Length) -> Iterator[Fault]:
        if self.name in ("steps", "full", "slow", "mixed"):
            for one in self._spells(seed, length, length.replicas, STEPS_S):
                yield _slow(one.place, one.at, one.until, FACTOR)
        elif self.name == "node":
            for one in self._spells(seed, length, length.nodes, STEPS_S):
                for replica in fleet.on_node(node_name(one.place)):
                    yield _slow(replica, one.at, one.until, FACTOR)
        elif self.name == "frozen":
            for one in self._spells(seed, length, length.replicas, FREEZE_S):
                yield Fault(at=one.at, replica=one.place, kind="freeze", until=one.until)
        if self.name == "slow":
            # The fleet becomes slow early enough to serve the backlog before the run ends.
            at = length.warm_s + length.measured_s / 4
            for replica in range(length.replicas):
                yield _slow(replica, at, at + length.slow_s, FLEET_FACTOR)
        if self.name == "mixed":
            for replica in range(0, length.replicas, 2):
                yield _slow(replica, 0.0, 10.0 * length.until_s, FLEET_FACTOR)

    def _neighbours(self, seed: int, length: Length) -> Iterator[Neighbour]:
        if self.name == "neighbour":
            for one in self._spells(seed, length, length.replicas, LONG_S):
                yield Neighbour(
                    at=one.at, replica=one.place, prompt_tokens=LONG_TOKENS, output_tokens=100
                )
        elif self.name == "kv":
            for one in self._spells(seed, length, length.replicas, FILL_S):
                for number in range(FILL_REQUESTS):
                    yield Neighbour(
                        at=one.at + number * FILL_EVERY_S,
                        replica=one.place,
                        prompt_tokens=FILL_PROMPT,
                        output_tokens=FILL_OUTPUT,
                    )


def _slow(replica: int, at: float, until: float, factor: float) -> Fault:
    return Fault(at=at, replica=replica, kind="slow", until=until, factor=factor)


_MIXED_LOAD = HALF * (1.0 + 1.0 / FLEET_FACTOR) / 2.0  # half of the rate that saturates this fleet
CASES = (
    Case("calm", "no stragglers", "kept"),
    Case("late", "5 % of the attempts reach their engine late", "cut"),
    Case("steps", "replicas with slow steps", "cut"),
    Case("node", "nodes with slow steps", "cut", share=0.1),
    Case("neighbour", "a neighbour's prompt of 32,000 tokens", "cut"),
    Case("kv", "a neighbour fills the KV cache", "cut", share=0.1, kv_tokens=SMALL_KV_TOKENS),
    Case("frozen", "replicas that freeze", "bounded"),
    Case("full", "replicas with slow steps, at load 0.9", "kept", FULL),
    Case("slow", "replicas with slow steps, the whole fleet slow for a while", "kept"),
    Case("mixed", "replicas with slow steps, half of the fleet 3 × slower", "kept", _MIXED_LOAD),
)


def task(
    case: Case, label: str, hedging: Hedging, rate: float, seed: int, length: Length, again: bool
) -> Task:
    """Return the task of one run at `rate` requests/s.

    With `again`, the routers draw other random numbers, while the traffic and the slow times are
    still those of the seed. (In the case `late`, other attempts are late.)
    """
    scenario = case.scenario(hedging, seed, length)
    if again:
        scenario = replace(scenario, seed=Random(f"again {seed}").getrandbits(32))
    return Task(
        policy=label,
        scenario=scenario,
        traffic=partial(traffic, rate, length.until_s, seed, length.replicas),
        measure_from=length.warm_s,
        measure_until=length.until_s,
    )
