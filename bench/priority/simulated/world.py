"""The simulated fleet, and the traffic as requests with block hashes.

Must never depend on the order of the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from heapq import merge
from random import Random
from typing import Final, TypeVar

from bench.priority import traffic as law
from bench.priority.orders import rules
from router.config.model import Config
from router.config.varied import varied
from router.lab.emulator.core.timing import CoreConfig
from router.lab.simulator.router import TOKEN_BYTES
from router.lab.simulator.scenario import Scenario, equal
from router.lab.simulator.traffic import Arrival
from router.lab.simulator.workloads import new_blocks

A = TypeVar("A", bound=Arrival)
BLOCK_TOKENS: Final = 64
_RAMP_S: Final = 5.0  # the closed-loop clients start within this many seconds


def scenario(order: str, seed: int) -> Scenario:
    return fleet_scenario(law.SMALL, varied(queue=rules(order)), seed)


def fleet_scenario(fleet: law.Fleet, config: Config, seed: int) -> Scenario:
    """Return the fleet with this configuration. The prefix index uses the traffic's block size."""
    return Scenario(
        groups=equal(
            fleet.engines,
            CoreConfig(
                max_num_seqs=fleet.slots,
                num_blocks=fleet.kv_tokens // BLOCK_TOKENS,
                block_size=BLOCK_TOKENS,
            ),
            fleet.timing,
        ),
        config=varied(config, prefix={"block_bytes": int(BLOCK_TOKENS * TOKEN_BYTES)}),
        sample_s=0.0,
        seed=seed,
    )


class _Work(Arrival):
    """A request of a closed-loop client, which sends its next request when this one has ended."""

    __slots__ = ("client",)

    client: int


class Crowd:
    """The traffic of all clients. A client's requests do not depend on the times at which it can
    send.
    """

    name = "crowd"
    block_tokens = BLOCK_TOKENS

    def __init__(
        self, seed: int, until: float, fleet: law.Fleet = law.SMALL, mix: law.Mix = law.MIX
    ) -> None:
        self._fleet = fleet
        self._mix = mix
        self._seed = seed
        self._until = until
        self._numbers = 0
        self._clients = [Random(f"client {client} of {seed}") for client in range(mix.clients)]

    def __iter__(self) -> Iterator[Arrival]:
        return merge(self._ramp(), *map(self._open, self._mix.open), key=_time)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        if not isinstance(ended, _Work) or now >= self._until:
            return ()
        return (self._next(ended.client, now),)

    def _ramp(self) -> Iterator[Arrival]:
        clients = self._mix.clients
        for client in range(clients):
            yield self._next(client, _RAMP_S * client / clients)

    def _next(self, client: int, at: float) -> Arrival:
        rng, kind = self._clients[client], self._mix.kind(client)
        asked = law.draw(kind, rng, self._mix.tenant(client))
        work = self._arrival(_Work, kind, asked, at, rng)
        work.client = client
        return work

    def _open(self, kind: law.Kind) -> Iterator[Arrival]:
        rng = Random(f"{kind.name} of {self._seed}")
        rate = law.rate(kind, self._fleet)
        at = rng.expovariate(rate)
        while at < self._until:
            yield self._arrival(Arrival, kind, law.draw(kind, rng), at, rng)
            at += rng.expovariate(rate)

    def _arrival(
        self, make: type[A], kind: law.Kind, asked: law.Asked, at: float, rng: Random
    ) -> A:
        self._numbers += 1
        document = _document(kind, asked.tenant, asked.document)
        tokens = kind.document_tokens + asked.question
        return make(
            self._numbers,
            at,
            tokens,
            asked.output,
            document + new_blocks(rng, tokens // BLOCK_TOKENS - len(document)),
            tenant=f"{kind.name} {asked.tenant}",
            priority=kind.name,
        )


@cache
def _document(kind: law.Kind, tenant: int, document: int) -> tuple[int, ...]:
    rng = Random(f"document {document} of {kind.name} {tenant}")
    return new_blocks(rng, kind.document_tokens // BLOCK_TOKENS)


def _time(arrival: Arrival) -> float:
    return arrival.at
