"""The fleet and the traffic of the sweeps over policies, budgets and loads. (Those of the goals are
in `nodes`.)

Each replica is an 8B model on one A100; the router's queue is off. Prompts share no prefix, so that
prefix affinity has no effect. Their lengths are lognormal: median 3,000 tokens, at most 9,000.
Every fifth request is urgent; all classes have the same length distribution, so that a fifth of the
prefill tokens is urgent too. One attempt in twenty takes ten times as long to its first token, on
any replica. The attempt does not occupy its engine meanwhile
(`router.lab.simulator.scenario.Straggling`), so such late attempts are the cheapest to hedge.

Load is a share of the rate at which the fleet saturates without a cache hit
(`bench.fleet.capacity`). Must never depend on whether hedging is enabled.

`Class`, `Result`, `Task`: runs one simulation of the hedging bench and computes its figures by
class.

Every time to first token is kept: an approximate histogram is too coarse for goals of two percent.
A request without an answer counts as slower than all others.

Must never count a request that arrived outside the measured time.

`Spell`: draws the times at which an engine is slow: slow steps, or long requests of another client.

A slow engine delays every request that is sent to it meanwhile. The times depend only on the seed,
so that all compared configurations meet the same slow engines. Pure: the same arguments give the
same times. Must never depend on a router or a policy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import fsum, inf
from random import Random
from typing import TextIO

from bench.findings.stored import show
from bench.fleet.simulated.worlds import FLEET, cold_rate
from bench.fleet.statistics import quantile
from router.config.model import Hedging
from router.config.varied import varied
from router.core.errors import Reason
from router.lab.replay.workers import run_all
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario, Straggling, resized
from router.lab.simulator.simulation import simulate
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Traffic
from router.lab.simulator.workloads import Mix, Unique


@dataclass(frozen=True, slots=True)
class Spell:
    """A time from `at` to `until`, in seconds, in which one place is slow: a replica or a node."""

    place: int  # number of the replica or node, from 0
    at: float
    until: float


def spells(seed: str, places: int, until_s: float, share: float, length_s: float) -> list[Spell]:
    """Return slow times of `length_s` seconds, which cover the share `share` of each place's time.

    The pauses between slow times are exponential, and independent of the pauses at other places.
    Slow times at one place never overlap. Raises ValueError for a share that is not above 0 and
    below 1.
    """
    if not (0.0 < share < 1.0 and length_s > 0.0):
        raise ValueError("share must be above 0 and below 1, length_s above 0")
    pause_s = length_s * (1.0 / share - 1.0)
    found = [
        spell
        for place in range(places)
        for spell in _at(Random(f"spells {seed} {place}"), place, until_s, pause_s, length_s)
    ]
    return sorted(found, key=lambda spell: (spell.at, spell.place))


def _at(
    rng: Random, place: int, until_s: float, pause_s: float, length_s: float
) -> Iterator[Spell]:
    at = rng.expovariate(1.0 / pause_s)
    while at < until_s:
        yield Spell(place, at, at + length_s)
        at += length_s + rng.expovariate(1.0 / pause_s)


LOAD = 0.5
OTHER = "normal"
MOST_URGENT = "critical"  # the only class that the policy `immediate` copies
URGENT_SHARE = 0.2  # share of urgent requests, and of their prefill tokens
STRAGGLING = Straggling(share=0.05, factor=10.0)
_LAW = 20_000  # number of requests from which the workload's lengths are estimated


@dataclass(frozen=True, slots=True)
class Extent:
    """Size of the fleet, and length of each run."""

    replicas: int = 100
    measured_s: float = 400.0
    # Seconds that are not counted: batches fill, and the router learns the usual times.
    warm_s: float = 60.0

    @classmethod
    def quick(cls) -> Extent:
        return cls(8, 20.0, 10.0)

    @property
    def until_s(self) -> float:
        return self.warm_s + self.measured_s


def fleet(replicas: int) -> Scenario:
    # `sample_s=0` turns off the samples of replica loads, which this bench does not use.
    return replace(resized(FLEET, replicas), straggling=STRAGGLING, sample_s=0.0)


def hedged(scenario: Scenario, hedging: Hedging) -> Scenario:
    """Return the same scenario with another configuration of hedging."""
    return replace(scenario, config=varied(scenario.config, hedging=hedging))


def saturation(scenario: Scenario) -> float:
    """Requests/s at which the fleet saturates."""
    law = islice(Unique(rate=1.0, duration_s=float("inf"), seed=0), _LAW)
    sizes = [(float(one.prompt_tokens), one.output_tokens) for one in law]
    return cold_rate(scenario, sizes)


def traffic(
    rate: float,
    duration_s: float,
    seed: int,
    urgent: float = URGENT_SHARE,
) -> Traffic:
    """Return traffic in which a share `urgent` is of class MOST_URGENT and the rest of class
    normal.
    """
    parts = [
        Unique(rate=rate * share, duration_s=duration_s, seed=2 * seed + place, priority=priority)
        for place, (priority, share) in enumerate(((MOST_URGENT, urgent), (OTHER, 1.0 - urgent)))
        if share > 0.0
    ]
    return Mix(*parts, name="unique prompts")


@dataclass(slots=True)
class Class:
    """The requests of one priority class."""

    # Seconds; infinite without an answer.
    ttfts: array[float] = field(default_factory=lambda: array("d"))
    hedged: int = 0
    won: int = 0  # requests that were answered by their copy
    prefill_tokens: int = 0  # prompt tokens, without cached ones, of the attempts that answered
    wasted_tokens: int = 0  # prompt tokens, without cached ones, of cancelled copies
    _ranked: list[float] = field(default_factory=list)

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        ttft_s = outcome.ttft_s if outcome.reason is Reason.OK else None
        self.ttfts.append(inf if ttft_s is None else ttft_s)
        self.hedged += outcome.hedged
        self.won += outcome.hedge_won
        self.prefill_tokens += arrival.prompt_tokens - outcome.cached_tokens
        self.wasted_tokens += outcome.wasted_tokens

    @property
    def ranked(self) -> Sequence[float]:
        if len(self._ranked) != len(self.ttfts):
            self._ranked = sorted(self.ttfts)
        return self._ranked

    @property
    def requests(self) -> int:
        return len(self.ttfts)

    def ttft(self, q: float) -> float | None:
        """Quantile in seconds. None without requests; infinite if too many had no answer."""
        return quantile(self.ranked, q)

    @property
    def mean(self) -> float | None:
        return fsum(self.ttfts) / len(self.ttfts) if self.ttfts else None


@dataclass(slots=True)
class Result:
    """The result of one run."""

    label: str
    classes: dict[str, Class]
    totals: Totals

    def of(self, name: str) -> Class:
        return self.classes.get(name) or Class()

    @property
    def extra(self) -> float | None:
        """Prompt tokens of cancelled copies, as a share of the tokens of answered attempts."""
        asked = sum(seen.prefill_tokens for seen in self.classes.values())
        wasted = sum(seen.wasted_tokens for seen in self.classes.values())
        return wasted / asked if asked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One simulation: its scenario, its traffic, and which requests are counted. Picklable."""

    policy: str  # name of the hedging configuration, which labels the table row
    scenario: Scenario
    traffic: Callable[[], Traffic]  # called in the process of the simulation; must be picklable
    measure_from: float = 0.0  # seconds; requests that arrive earlier are not counted
    measure_until: float = inf  # seconds; requests that arrive from this time on are not counted

    def run(self, line: TextIO | None = None) -> Result:
        """Simulate the scenario; `line` is not used. Raises the errors of `simulate`."""
        seen = _Window(self.measure_from, self.measure_until)
        totals = simulate(self.scenario, self.traffic(), seen)
        return Result(self.policy, seen.classes, totals)


class _Window:
    """Collects figures by class for requests that arrive in the measured time."""

    def __init__(self, begin: float, end: float) -> None:
        self.classes: dict[str, Class] = {}
        self._begin = begin
        self._end = end

    def ended(self, outcome: Outcome) -> None:
        if self._begin <= outcome.arrival.at < self._end:
            self.classes.setdefault(outcome.arrival.priority, Class()).ended(outcome)


def play(tasks: Sequence[Task], at_once: int = 1) -> list[Result]:
    """Run all tasks, up to `at_once` at a time. Results are in the order of the tasks.

    Raises the errors of `run_all`.
    """
    return run_all(tasks, at_once, finished=show)
