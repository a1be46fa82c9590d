"""The part `deadlines` of `hedgerow bench priority`: how many answers are in time under each order.

In the other parts, all requests of a class have the same target for the first token, so within a
class an order by deadline is the order of arrival. Here clients state deadlines, and the load comes
in waves. During a wave above the fleet's capacity no order serves all requests in time, and the
orders differ in which requests are served late.

All functions except `run` are pure. Must never count a request that arrived before the measured
time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final, TextIO

from bench.findings.found import Found
from bench.findings.stored import show
from bench.fleet import capacity
from bench.priority import traffic as fleet
from bench.priority.rows import NONE
from bench.priority.simulated import world
from bench.priority.simulated.world import Length
from router.core.errors import Reason
from router.core.text.table import Column, build
from router.lab.emulator.core.timing import PROFILES
from router.lab.replay.workers import run_all
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival
from router.lab.simulator.workloads import Lengths, new_blocks

# Class of all requests; its own deadline is 10 s, so clients can state an earlier one.
CLASS: Final = "low"
WAVE_S: Final = 60.0
HIGH_S: Final = 20.0  # seconds of high load in each wave
# High loads, as shares of the rate that fills the fleet. At the first load a queue can still keep
# deadlines, at the second no queue can.
HIGH_LOADS: Final = (1.5, 2.5)
LOW_LOAD: Final = 0.5


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of requests with one deadline. All requests of a kind have the same tenant."""

    name: str
    share: float  # share of all requests
    deadline_s: float  # target for the time from a request's arrival to its first token, in seconds
    states: bool  # whether the client sends the deadline to the router
    prompt: Lengths
    output: Lengths


KINDS: Final = (
    Kind("chat", 0.5, 3.0, True, Lengths(600, 0.5, 4000), Lengths(80, 0.5, 400)),
    Kind("tool", 0.3, 6.0, True, Lengths(1500, 0.5, 8000), Lengths(40, 0.5, 200)),
    Kind("report", 0.2, 10.0, False, Lengths(4000, 0.5, 16_000), Lengths(300, 0.5, 900)),
)


@dataclass(slots=True)
class Tide:
    """Traffic with Poisson arrivals, whose rate alternates between high and low."""

    seed: int
    until: float
    high: float = HIGH_LOADS[0]
    name: str = "tide"
    block_tokens: int = world.BLOCK_TOKENS
    _rate: float = field(init=False)

    def __post_init__(self) -> None:
        self._rate = full_rate()

    def __iter__(self) -> Iterator[Arrival]:
        rng = Random(f"tide {self.seed}")
        at = 0.0
        number = 0
        while True:
            load = self.high if at % WAVE_S < HIGH_S else LOW_LOAD
            at += rng.expovariate(self._rate * load)
            if at >= self.until:
                return
            number += 1
            yield _arrival(number, at, rng)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()


def _arrival(number: int, at: float, rng: Random) -> Arrival:
    kind = rng.choices(KINDS, [kind.share for kind in KINDS])[0]
    tokens = kind.prompt.draw(rng)
    return Arrival(
        number,
        at,
        tokens,
        kind.output.draw(rng),
        new_blocks(rng, tokens // world.BLOCK_TOKENS),
        tenant=kind.name,
        priority=CLASS,
        deadline_s=kind.deadline_s if kind.states else inf,
    )


def full_rate() -> float:
    """Requests/s that fill the fleet."""
    rng = Random("law of the tide")
    law = [_arrival(number, 0.0, rng) for number in range(4000)]
    sizes = [(float(one.prompt_tokens), one.output_tokens) for one in law]
    engine = capacity.Engine(PROFILES[fleet.PROFILE], fleet.KV_TOKENS, fleet.SLOTS)
    return capacity.saturation(engine, fleet.ENGINES, sizes)


@dataclass(slots=True)
class Result:
    """The result of one order at one high load, over one or several runs."""

    order: str
    high: float
    came: dict[str, int] = field(default_factory=dict)  # number of requests that arrived, by kind
    in_time: dict[str, int] = field(default_factory=dict)
    output_tokens: int = 0  # output tokens of answers whose first token was in time
    seconds: float = 0.0

    def add(self, other: Result) -> None:
        for name in other.came:
            self.came[name] = self.came.get(name, 0) + other.came[name]
            self.in_time[name] = self.in_time.get(name, 0) + other.in_time.get(name, 0)
        self.output_tokens += other.output_tokens
        self.seconds += other.seconds

    def share(self, name: str = "") -> float | None:
        """Percent of a kind's requests with a first token in time; of all kinds without a name."""
        names = [name] if name else list(self.came)
        came = sum(self.came.get(one, 0) for one in names)
        return 100.0 * sum(self.in_time.get(one, 0) for one in names) / came if came else None


@dataclass(frozen=True, slots=True)
class Task:
    """One simulation of one order at one high load. Picklable."""

    policy: str  # name of the order, with which `run_all` labels the task
    scenario: Scenario
    high: float
    length: Length

    def run(self, line: TextIO | None = None) -> Result:
        """Simulate the scenario; `line` is not used. Raises the errors of `simulate`."""
        until = self.length.warm_s + self.length.measured_s
        seen = _Seen(Result(self.policy, self.high), self.length.warm_s)
        simulate(self.scenario, Tide(self.scenario.seed, until, self.high), seen)
        seen.result.seconds = self.length.measured_s
        return seen.result


class _Seen:
    """Counts requests that arrive after the warm-up, and how many of them have a first token in
    time.
    """

    def __init__(self, result: Result, begin: float) -> None:
        self.result = result
        self._begin = begin
        self._deadlines = {kind.name: kind.deadline_s for kind in KINDS}

    def ended(self, outcome: Outcome) -> None:
        arrival, result = outcome.arrival, self.result
        if arrival.at < self._begin:
            return
        name = arrival.tenant
        result.came[name] = result.came.get(name, 0) + 1
        ttft_s = outcome.ttft_s
        is_late = ttft_s is None or ttft_s > self._deadlines[name]
        if outcome.reason is Reason.OK and not is_late:
            result.in_time[name] = result.in_time.get(name, 0) + 1
            result.output_tokens += arrival.output_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options, because this part has the same options as the part `simulated`."""


def run(args: argparse.Namespace, orders: Sequence[str]) -> Found:
    """Return the table of this part. Raises the errors of `run_all`."""
    length = Length.quick() if args.quick else Length()
    print("simulating every order with deadlines", file=sys.stderr, flush=True)
    tasks = [
        Task(order, world.scenario(order, number), high, length)
        for order in orders
        if order != NONE
        for high in HIGH_LOADS
        for number in range(args.seed, args.seed + length.seeds)
    ]
    rows: dict[str, dict[float, Result]] = {}
    for result in run_all(tasks, args.jobs, finished=show):
        row = rows.setdefault(result.order, {})
        row.setdefault(result.high, Result(result.order, result.high)).add(result)
    return Found(
        "Deadlines: first tokens in time, every order, load in waves",
        f"{fleet.ENGINES} engines of {fleet.SLOTS} slots. {words()}",
        build(list(rows.items()), _columns()),
        figures={
            "deadlines": [
                {"order": order, "high": high, **{name: one.share(name) for name in _NAMES}}
                for order, row in rows.items()
                for high, one in row.items()
            ]
        },
    )


def words() -> str:
    """Describe the traffic as text."""
    kinds = "; ".join(
        f"{kind.name}: {kind.share:.0%} of the requests, {kind.deadline_s:g} s to the first token"
        f"{'' if kind.states else ' (the time of its class; its client states none)'}, prompts of "
        f"{kind.prompt.median:g} and answers of {kind.output.median:g} tokens (medians, lognormal)"
        for kind in KINDS
    )
    return (
        f"All requests are of class {CLASS}; no two share a prefix. Poisson arrivals at "
        f"{' or '.join(f'{high:.0%}' for high in HIGH_LOADS)} of the rate that fills the fleet for "
        f"{HIGH_S:g} s of every {WAVE_S:g} s, and at {LOW_LOAD:.0%} otherwise. {kinds}. In time: "
        "of all requests that came, percent."
    )


_NAMES: Final = (*(kind.name for kind in KINDS), "")
_Row = tuple[str, dict[float, Result]]


def _columns() -> list[Column[_Row]]:
    def share(high: float, name: str) -> Column[_Row]:
        title = name or "all"
        return Column(
            f"{title}_{high:g}",
            f"{title} in time",
            f"%, at {high:.0%}",
            lambda row: row[1][high].share(name),
            "high",
        )

    def tokens(high: float) -> Column[_Row]:
        def value(row: _Row) -> float | None:
            one = row[1][high]
            return one.output_tokens / one.seconds if one.seconds else None

        return Column(
            f"tokens_{high:g}", "output in time", f"tokens/s, at {high:.0%}", value, "high"
        )

    found: list[Column[_Row]] = [Column("order", "order", text=lambda row: row[0])]
    for high in HIGH_LOADS:
        found += [*(share(high, name) for name in _NAMES), tokens(high)]
    return found
