"""The fleet and the traffic of the goals: nodes of four replicas, and prompts with shared prefixes.

Each replica is an 8B model on one A100. All settings have their defaults, so the queue is enabled.
Two thirds of a prompt are the prefix of its group. So the replica that has the prefix prefills a
third of the prompt, and another replica usually prefills all of it for a copy. Every fifth request
is urgent; both classes use the same prefixes and lengths.

Load is a share of the rate at which the fleet saturates if every prefix is cached
(`bench.fleet.capacity`). Must never depend on whether hedging is enabled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from bench.fleet import capacity
from bench.fleet.simulated.worlds import BLOCK_TOKENS, core
from router.config.model import Config, Hedging
from router.config.varied import varied
from router.lab.emulator.core.timing import PROFILES
from router.lab.simulator.scenario import Group, Scenario
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
