"""Defines the simulated fleet, the loads, and the SLOs of each class for each trace.

Must never depend on which order and policy is simulated.

`Window`, `Law`: plays windows of a recorded trace. Each request gets one of three classes at
random.

The trace is divided into windows. Run number n plays window n, so runs differ in their traffic, and
every compared order and policy gets the same windows. If there are more runs than windows, the
first windows are used again.

Must never depend on a policy.

`Slo`, `Part`, `Score`: computes the token-level deadline-aware gain (TDG) and the SLO attainment of
each class.

Source: PROSERVE (arXiv 2512.12928). Token i of a request counts with the worth of its class if it
arrives before `arrival + TTFT SLO + (i - 1) * TPOT SLO`. The simulator knows the times of the first
and the last token; the tokens between them are assumed to be evenly spaced. A failed request has no
token in time. Its tokens are included in the gain that was possible.

Pure. Must never depend on a policy.

`Task`: simulates one order of the queue with one routing policy, at one load, on one window of a
trace.

Must never count a request that arrived during the warm-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TextIO

from msgspec.structs import replace

from bench.fleet import capacity
from bench.traces import PublicTrace
from bench.traces.reuse import hits_of
from router.config.model import Config
from router.config.varied import varied
from router.core.errors import Reason
from router.core.token_gain import on_time_evenly
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.router import TOKEN_BYTES
from router.lab.simulator.scenario import Scenario, equal
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival


@dataclass(frozen=True, slots=True)
class Contestant:
    """One combination, which is one row of the table."""

    order: str  # name of the queue's order
    policy: str  # name of the routing policy

    @property
    def name(self) -> str:
        return f"{self.order} + {self.policy}"


OURS: Final = Contestant("slide", "gain")
BASELINES: Final = (
    Contestant("fifo", "least_load"),
    Contestant("strict", "least_load"),
    Contestant("edf", "kv_aware"),
    # Like llm-d: priority classes served strictly in order, and its scorers' default weights.
    Contestant("strict", "weighted"),
)
# The default settings, and the order of OURS with the default routing policy.
OTHERS: Final = (
    Contestant("fair", "kv_aware"),
    Contestant("slide", "kv_aware"),
)
ALL: Final = (OURS, *BASELINES, *OTHERS)


@dataclass(frozen=True, slots=True)
class Slo:
    """The targets of one class in seconds, and the worth of one of its tokens."""

    ttft_s: float
    tpot_s: float
    worth: float


@dataclass(slots=True)
class Part:
    """Counts of requests and tokens of one class."""

    requests: int = 0
    in_slo: int = 0  # requests whose TTFT and mean time per token are both within the SLO
    in_ttft: int = 0
    tokens: int = 0
    on_time: int = 0

    def add(self, other: Part) -> None:
        self.requests += other.requests
        self.in_slo += other.in_slo
        self.in_ttft += other.in_ttft
        self.tokens += other.tokens
        self.on_time += other.on_time

    @property
    def attainment(self) -> float:
        """Share of the requests within the SLO, 0 to 1."""
        return self.in_slo / self.requests if self.requests else 0.0


@dataclass(slots=True)
class Score:
    """Counts the requests of one run by class, and computes the run's gain."""

    slos: Mapping[str, Slo]
    by_class: dict[str, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_class = {name: Part() for name in self.slos}

    def count(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        slo = self.slos[arrival.priority]
        part = self.by_class[arrival.priority]
        count = max(1, arrival.output_tokens)
        part.requests += 1
        part.tokens += count
        if outcome.reason is not Reason.OK or outcome.first < 0.0:
            return
        first_s = outcome.first - arrival.at
        tpot_s = (outcome.ended - outcome.first) / (count - 1) if count > 1 else 0.0
        first_due = arrival.at + slo.ttft_s
        part.on_time += int(
            on_time_evenly(first_due, slo.tpot_s, count, outcome.first, outcome.ended)
        )
        part.in_ttft += first_s <= slo.ttft_s
        part.in_slo += first_s <= slo.ttft_s and tpot_s <= slo.tpot_s

    @property
    def ratio(self) -> float:
        """The achieved gain divided by the gain if every token had arrived in time, 0 to 1."""
        achieved = attainable = 0.0
        for name, part in self.by_class.items():
            achieved += self.slos[name].worth * part.on_time
            attainable += self.slos[name].worth * part.tokens
        return achieved / attainable if attainable else 0.0


SHARES = {"high": 0.2, "normal": 0.5, "low": 0.3}


@dataclass(frozen=True, slots=True)
class Window:
    """The traffic of one run: one part of a trace, played at another speed."""

    path: str
    since_s: float  # start of the window in the trace's time
    requests: int
    speedup: float
    seed: int
    block_tokens: int
    name: str = "window"

    def __iter__(self) -> Iterator[Arrival]:
        rng = Random(f"classes {self.seed}")
        names, shares = list(SHARES), list(SHARES.values())
        trace = PublicTrace(
            self.path, spread_seed=self.seed, since_s=self.since_s, limit=self.requests
        )
        begin = None
        for arrival in trace:
            if begin is None:
                begin = arrival.at
            arrival.at = (arrival.at - begin) / self.speedup
            arrival.priority = rng.choices(names, shares)[0]
            yield arrival

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()


@dataclass(frozen=True, slots=True)
class Law:
    """The request rate, the lengths and the reuse of a whole trace."""

    block_tokens: int
    rate: float  # requests/s of the trace at its own speed
    seconds: float
    sizes: tuple[tuple[float, int], ...]  # (prompt tokens, output tokens) of each request
    # Prompt tokens of each request that one cache as large as all of the fleet's would hold.
    reused: tuple[float, ...]


def law(path: str, kv_tokens: int) -> Law:
    """Measure a trace. `kv_tokens` is the size of all the fleet's caches together. Raises
    TraceError, OSError.
    """
    trace = PublicTrace(path)
    size = trace.block_tokens
    sizes, reused = [], []
    last = 0.0
    for arrival, hits in hits_of(trace, kv_tokens // size):
        sizes.append((float(arrival.prompt_tokens), arrival.output_tokens))
        reused.append(float(hits * size))
        last = arrival.at
    return Law(size, len(sizes) / last, last, tuple(sizes), tuple(reused))


# Llama-2-70B on four H100: the KV cache is 0.9 of the GPUs' memory minus the weights, at 320 KiB
# per token.
PROFILE = "llama2-70b-h100x4"
KV_TOKENS = int((0.9 * 4 * 80e9 - 2 * 69.0e9) / (80 * 8 * 128 * 2 * 2))
SLOTS = 256
REPLICAS = 4
LOADS = (50, 70, 90, 110, 130, 150)  # loads in % of the rate that saturates the fleet


@dataclass(frozen=True, slots=True)
class World:
    """One trace, with SLOs that its prompt lengths allow."""

    name: str
    path: str
    law: Law
    slos: dict[str, Slo]

    @property
    def full_rate(self) -> float:
        """Requests/s at which the fleet saturates with the hits of one cache as large as all
        caches.
        """
        engine = capacity.Engine(PROFILES[PROFILE], KV_TOKENS, SLOTS)
        return capacity.saturation(engine, REPLICAS, self.law.sizes, self.law.reused)

    def scenario(self, contestant: Contestant, seed: int) -> Scenario:
        size = self.law.block_tokens
        usual = Config().classes
        classes = {
            name: replace(
                getattr(usual, name),
                ttft_slo_s=slo.ttft_s,
                tpot_slo_s=slo.tpot_s,
                weight=slo.worth,
            )
            for name, slo in self.slos.items()
        }
        queue: dict[str, Any] = {"policy": contestant.order}
        return Scenario(
            groups=equal(
                REPLICAS,
                CoreConfig(max_num_seqs=SLOTS, num_blocks=KV_TOKENS // size, block_size=size),
                PROFILES[PROFILE],
            ),
            config=varied(
                queue=queue,
                classes=classes,
                routing={"policy": contestant.policy},
                prefix={"block_bytes": int(size * TOKEN_BYTES)},
            ),
            sample_s=0.0,
            seed=seed,
        )

    def traffic(self, load: int, seed: int, requests: int) -> Window:
        law = self.law
        width_s = requests / law.rate
        windows = max(1, int(law.seconds / width_s))
        return Window(
            self.path,
            (seed % windows) * width_s,
            requests,
            load / 100.0 * self.full_rate / law.rate,
            seed,
            law.block_tokens,
        )


# For Azure's trace, whose prompts are short, the targets are the defaults of the classes.
# Mooncake's prompts have 12,000 tokens on average. One in twenty has 40,000 tokens, which take 7 s
# to prefill.
AZURE = {
    "high": Slo(0.5, 0.05, 8.0),
    "normal": Slo(2.0, 0.1, 4.0),
    "low": Slo(10.0, 0.2, 2.0),
}
MOONCAKE = {
    "high": Slo(5.0, 0.1, 8.0),
    "normal": Slo(15.0, 0.2, 4.0),
    "low": Slo(60.0, 0.4, 2.0),
}


WARM = 0.2  # share of the requests, from the first on, that are not counted


@dataclass(frozen=True, slots=True)
class Task:
    contestant: Contestant
    world: World
    load: int  # load in % of the rate that saturates the fleet
    seed: int
    requests: int

    @property
    def policy(self) -> str:
        return self.contestant.name

    @property
    def scenario(self) -> Scenario:
        return self.world.scenario(self.contestant, self.seed)

    def run(self, line: TextIO | None = None) -> Score:
        """Simulate and return the score; `line` is not used. Raises the errors of `simulate`."""
        seen = _Counted(Score(self.world.slos), int(WARM * self.requests))
        traffic = self.world.traffic(self.load, self.seed, self.requests)
        simulate(self.scenario, traffic, seen)
        return seen.score


class _Counted:
    """Counts a simulation's requests after the warm-up."""

    def __init__(self, score: Score, first: int) -> None:
        self.score = score
        self._first = first

    def ended(self, outcome: Outcome) -> None:
        if outcome.arrival.number >= self._first:
            self.score.count(outcome)
