"""The rolling restart: the fleet, the cases, and when each replica is away.

One replica after the other gets no more requests, restarts with an empty cache, and serves again.
The traffic is that of `bench.hedging.simulated.nodes`: prompts are the prefix of a group and a new
question. The cases differ in the load and in the size of the KV caches. In *small*, the prefixes
and the requests of a replica fill its cache. So a prefix that is not used for a minute is evicted,
and every copy displaces another prefix.

Must never: depend on whether warm-up is on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.hedging.simulated import nodes
from router.config.model import Hedging
from router.lab.simulator.scenario import Fault, Scenario

HALF, FULL = 0.5, 0.9  # loads, as shares of the rate that saturates the fleet if all hits are kept
LARGE_KV_TOKENS = 430_000  # an 8B model in 16 bits on an A100 with 80 GB


@dataclass(frozen=True, slots=True)
class Case:
    """A case. `halves`: the goal for its lost hits is that warm-up halves them. Otherwise the goal
    is that warm-up does not add any."""

    name: str
    words: str
    kv_tokens: int
    halves: bool
    load: float = HALF


CASES = (
    Case("large", "caches with room", LARGE_KV_TOKENS, True),
    Case("small", "caches that are full", nodes.KV_TOKENS, False),
    Case("full", "caches with room, at load 0.9", LARGE_KV_TOKENS, False, FULL),
)


@dataclass(frozen=True, slots=True)
class Roll:
    """The fleet, its rolling restart, and the number of seeds."""

    nodes: int = 3
    restarts: int = 6  # number of replicas that restart
    seeds: int = 10
    warm_s: float = 120.0  # seconds before the first restart, which are not counted
    every_s: float = 90.0  # seconds from one restart to the next
    drain_s: float = 15.0  # seconds for which a replica gets no request before it stops
    down_s: float = 25.0

    @classmethod
    def quick(cls) -> Roll:
        return cls(nodes=1, restarts=1, seeds=1, warm_s=40.0, every_s=30.0, drain_s=5.0, down_s=5.0)

    @property
    def replicas(self) -> int:
        return self.nodes * nodes.PER_NODE

    @property
    def until_s(self) -> float:
        return self.warm_s + self.restarts * self.every_s + self.every_s / 2.0

    def rate(self, case: Case) -> float:
        """The rate of a case's traffic in requests/s."""
        return case.load * nodes.saturation(self.replicas)

    def scenario(self, case: Case, hedging: Hedging, seed: int, *, restarts: bool) -> Scenario:
        """The fleet of a case, with or without the restarts."""
        fleet = nodes.fleet(hedging, self.nodes, case.kv_tokens)
        return replace(fleet, seed=seed, faults=self._faults() if restarts else ())

    def _faults(self) -> tuple[Fault, ...]:
        found = []
        for number in range(self.restarts):
            # Replicas that restart one after the other are on different nodes.
            replica = number % self.nodes * nodes.PER_NODE + number // self.nodes
            at = self.warm_s + number * self.every_s
            stops, until = at + self.drain_s, at + self.drain_s + self.down_s
            found.append(Fault(at=at, replica=replica, kind="drain", until=until))
            found.append(Fault(at=stops, replica=replica, kind="kill", until=until))
        return tuple(found)
