"""The simulated fleet, and the traffic as requests with block hashes.

Must never depend on the order of the queue.

`Length`, `Result`, `Task`: runs one simulation of an order and computes its results.

Must never count requests or tokens outside the measured time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import merge
from math import inf
from random import Random
from typing import Final, TextIO, TypeVar

from bench.findings.stored import show
from bench.priority import traffic as law
from bench.priority.rows import Row, rules, times
from router.config.model import Config
from router.config.varied import varied
from router.core.errors import Reason
from router.lab.emulator.core.timing import CoreConfig
from router.lab.replay.workers import run_all
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.router import TOKEN_BYTES
from router.lab.simulator.scenario import Scenario, equal
from router.lab.simulator.simulation import simulate
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


@dataclass(frozen=True, slots=True)
class Length:
    """Lengths of the simulation in seconds."""

    warm_s: float = 60.0
    measured_s: float = 400.0
    seeds: int = 3

    @classmethod
    def quick(cls) -> Length:
        return cls(5.0, 10.0, 1)


@dataclass(slots=True)
class Result:
    """The result of one run, or of several with different seeds."""

    order: str
    # Seconds; infinite without an answer.
    ttfts: dict[str, array[float]] = field(default_factory=dict)
    output_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    errors: int = 0

    def add(self, other: Result) -> None:
        for name, seen in other.ttfts.items():
            self.ttfts.setdefault(name, array("d")).extend(seen)
        self.output_tokens += other.output_tokens
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.seconds += other.seconds
        self.errors += other.errors

    def row(self) -> Row:
        hits = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None
        return Row(
            self.order,
            {name: times(seen) for name, seen in self.ttfts.items()},
            self.output_tokens / self.seconds,
            hits,
            self.errors,
        )


@dataclass(frozen=True, slots=True)
class Task:
    policy: str  # name of the order, with which `run_all` labels the task
    scenario: Scenario
    length: Length

    def run(self, line: TextIO | None = None) -> Result:
        """Simulate the scenario; `line` is not used. Raises the errors of `simulate`."""
        length = self.length
        until = length.warm_s + length.measured_s
        seen = _Window(self.policy, length.warm_s, until)
        simulate(self.scenario, Crowd(self.scenario.seed, until), seen)
        seen.result.seconds = length.measured_s
        return seen.result


class _Window:
    """Records the requests of the measured time."""

    def __init__(self, order: str, begin: float, end: float) -> None:
        self.result = Result(order)
        self._begin = begin
        self._end = end

    def ended(self, outcome: Outcome) -> None:
        arrival, result = outcome.arrival, self.result
        is_ok = outcome.reason is Reason.OK
        if self._begin <= arrival.at < self._end:
            ttft_s = outcome.ttft_s if is_ok else None
            seen = result.ttfts.setdefault(arrival.priority, array("d"))
            seen.append(inf if ttft_s is None else ttft_s)
            result.errors += not is_ok
        if is_ok and self._begin <= outcome.ended < self._end:
            result.output_tokens += arrival.output_tokens
            result.prompt_tokens += arrival.prompt_tokens
            result.cached_tokens += outcome.cached_tokens


def run(orders: Sequence[str], seed: int, jobs: int, length: Length) -> list[Row]:
    """Return one row per order. Raises the errors of `run_all`."""
    tasks = [
        Task(order, scenario(order, number), length)
        for order in orders
        for number in range(seed, seed + length.seeds)
    ]
    found: dict[str, Result] = {}
    for result in run_all(tasks, jobs, finished=show):
        found.setdefault(result.order, Result(result.order)).add(result)
    return [result.row() for result in found.values()]
