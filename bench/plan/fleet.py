"""Simulates a fleet as fluid queues, and computes the GPU-hours, cost and SLO attainment of a
controller.

Each region has one queue. In each step the replicas of the region serve tokens up to their
throughput; the remaining tokens wait. Before tokens wait, a share of them may go to another region
with free replicas. Tokens that wait longer than `SLO_S` miss the SLO. A started replica costs
GPU-hours at once, and serves after the lead time; a stopped replica ends at once. A reclaimed
replica ends at once, without a decision of the controller. The throughput of a replica is the
highest one within the SLO, so waits below that throughput are not modelled.

Pure. Must never depend on which controller it runs.

`PoolKey`, `Kind`, `World`: describes what a fleet must serve: the demand of each region, and the
kinds of replicas.

Pure. Must never: depend on a controller.

`Demand`, `Bursts`: generates two weeks of demand: the first is the history, the second is judged.

The seeded demand has a daily curve, quiet weekends, slow random changes and about one spike a day.
A trace can replace the spikes and the changes: each minute of the trace becomes one step, and the
trace is repeated to fill two weeks.

Pure, apart from the reading of a trace. The same seed gives the same demand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, exp, pi, sin
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

from bench.traces import PublicTrace

THROUGHPUT: Final = 3000.0  # tokens/s of a replica within the SLO
MANY: Final = 1000  # more replicas than any demand needs


class PoolKey(NamedTuple):
    """The replicas of one kind in one region."""

    region: str
    kind: str


Counts = Mapping[PoolKey, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of replica. All kinds have the throughput `THROUGHPUT`."""

    name: str
    cost: float = 1.0  # per replica and hour
    least: int = 0  # minimum number in each region
    most: int = MANY  # maximum number in each region
    reclaims_per_h: float = 0.0  # probability that a replica is taken away within an hour


GPU: Final = Kind("gpu", least=1)


@dataclass(frozen=True, slots=True)
class World:
    """The demand by region, and what may serve it."""

    name: str
    demands: Mapping[str, Demand]
    lead_s: float  # seconds until a started replica serves
    kinds: tuple[Kind, ...] = (GPU,)
    spill: float = 0.0  # maximum share of a region's demand that another region may serve
    seed: int = 0
    pools: tuple[PoolKey, ...] = field(init=False)

    def __post_init__(self) -> None:
        pools = [PoolKey(region, kind.name) for region in self.demands for kind in self.kinds]
        object.__setattr__(self, "pools", tuple(pools))

    @property
    def costs(self) -> dict[str, float]:
        return {kind.name: kind.cost for kind in self.kinds}

    def load(self, region: str, step: int) -> float:
        """Return the number of replicas that the demand of a step keeps busy."""
        return self.demands[region].tokens[step] / STEP_S / THROUGHPUT

    def peak(self, region: str) -> int:
        """Return the number of replicas for the highest demand of the second week."""
        return ceil(max(self.demands[region].tokens[WEEK:]) / STEP_S / THROUGHPUT)

    def spread(self, region: str, count: int) -> dict[PoolKey, int]:
        """Return `count` replicas of a region by kind, the cheapest kinds first."""
        found = {PoolKey(region, kind.name): kind.least for kind in self.kinds}
        left = count - sum(found.values())
        for kind in sorted(self.kinds, key=lambda kind: kind.cost):
            more = max(0, min(left, kind.most - kind.least))
            found[PoolKey(region, kind.name)] += more
            left -= more
        return found


STEP_S: Final = 300.0
DAY: Final = round(86400.0 / STEP_S)  # number of steps in a day
WEEK: Final = 7 * DAY
PEAK: Final = 60_000.0  # tokens/s at the peak of a usual weekday
PROMPT_SHARE: Final = 0.85  # share of prompt tokens in the seeded demand; a trace has its own share
_NIGHT: Final = 0.15  # demand at night, as a share of the peak
_WEEKEND: Final = 0.45  # demand at the weekend, as a share of a weekday's
_DRIFT: Final = 0.08  # standard deviation of the slow random changes, as a share of the demand
_KEPT: Final = 0.95  # share of a slow change that remains after a step
_SPIKES: Final = 1.0  # number of spikes per day


@dataclass(frozen=True, slots=True)
class Demand:
    """The number of tokens in each step."""

    name: str
    tokens: tuple[float, ...]
    prompt_share: float


@dataclass(frozen=True, slots=True)
class Bursts:
    """The demand of a trace in each minute, relative to the trace's mean."""

    name: str
    factors: tuple[float, ...]
    prompt_share: float


def seeded(seed: int, region: str = "", late_h: float = 0.0) -> Demand:
    """Generate demand without a trace. The day of the region begins `late_h` hours later."""
    rng = Random(f"plan {seed} {region}" if region else f"plan {seed}")
    late = round(late_h * 3600.0 / STEP_S)
    drift = 0.0
    spikes = [0.0] * (2 * WEEK)
    for _ in range(round(_SPIKES * 14)):
        begin, size = rng.randrange(2 * WEEK), rng.uniform(0.3, 1.0)
        for step in range(begin, min(begin + rng.randrange(2, 9), 2 * WEEK)):
            spikes[step] += size
    tokens = []
    for step in range(2 * WEEK):
        drift = _KEPT * drift + rng.gauss(0.0, _DRIFT * (1.0 - _KEPT**2) ** 0.5)
        noise = rng.gauss(0.0, 0.03)
        usual = PEAK * STEP_S * curve(step - late)
        tokens.append(usual * exp(drift + noise) * (1.0 + spikes[step]))
    return Demand("week", tuple(tokens), PROMPT_SHARE)


def with_bursts(bursts: Bursts, seed: int) -> Demand:
    """Generate demand with the changes of a trace. The seed decides where the trace begins."""
    count = len(bursts.factors)
    begin = Random(f"bursts {seed}").randrange(count)
    tokens = [
        PEAK * STEP_S * curve(step) * bursts.factors[(begin + step) % count]
        for step in range(2 * WEEK)
    ]
    return Demand(bursts.name, tuple(tokens), bursts.prompt_share)


def curve(step: int) -> float:
    """The usual demand, as a share of the peak of a weekday."""
    day, hour = divmod(step * STEP_S / 3600.0, 24.0)
    bump = max(0.0, sin(pi * (hour - 6.0) / 14.0)) if 6.0 <= hour <= 20.0 else 0.0
    share = _NIGHT + (1.0 - _NIGHT) * bump
    return share * (_WEEKEND if int(day) % 7 >= 5 else 1.0)


def bursts(name: str, path: str) -> Bursts:
    """Read a trace. Raises TraceError and OSError."""
    minutes: dict[int, float] = {}
    prompt = output = 0.0
    for arrival in PublicTrace(path):
        minute = int(arrival.at // 60.0)
        minutes[minute] = minutes.get(minute, 0.0) + arrival.prompt_tokens + arrival.output_tokens
        prompt += arrival.prompt_tokens
        output += arrival.output_tokens
    whole = [minutes.get(minute, 0.0) for minute in range(max(1, max(minutes)))]
    mean = fmean(whole)
    return Bursts(name, tuple(value / mean for value in whole), prompt / (prompt + output))


SLO_S: Final = 5.0  # longest wait within the SLO, in seconds


@dataclass(frozen=True, slots=True)
class Seen:
    """What a controller sees at the start of a step. The demand of earlier steps is known, too."""

    present: Counts  # replicas that serve or start
    serving: Counts
    waiting: Mapping[str, float]  # tokens that wait, by region


# A function (step, state of the fleet) -> replicas that should run.
Controller = Callable[[int, Seen], Counts]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    gpu_hours: float
    attainment: float  # share of the tokens that waited at most `SLO_S`
    cost: float


class _Pool:
    """The serving and the starting replicas of one kind in one region."""

    def __init__(self, serving: int, lead_s: float) -> None:
        self.serving = serving
        self.starting = [0] * round(lead_s / STEP_S)

    @property
    def present(self) -> int:
        return self.serving + sum(self.starting)

    def begin(self) -> None:
        """Begin a step: the oldest starting replicas serve now."""
        self.serving += self.starting.pop(0)

    def scale(self, wanted: int) -> None:
        change = wanted - self.present
        self.starting.append(max(0, change))
        # The replicas that started last are cancelled first.
        for place in range(len(self.starting) - 1, -1, -1):
            cancelled = min(self.starting[place], max(0, -change))
            self.starting[place] -= cancelled
            change += cancelled
        self.serving += min(0, change)


def run(
    world: World, first: int, begin: Counts, controller: Controller, least: float = 0.0
) -> Outcome | None:
    """Simulate the steps from `first` on. The replicas of `begin` serve at the start.

    The controller is asked at the start of each step. The simulation stops, and returns None, as
    soon as an attainment of `least` is out of reach.
    """
    total = sum(sum(demand.tokens[first:]) for demand in world.demands.values())
    late_most = (1.0 - least) * total + 1e-9 * total
    pools = {key: _Pool(begin.get(key, 0), world.lead_s) for key in world.pools}
    chances = {kind.name: kind.reclaims_per_h * STEP_S / 3600.0 for kind in world.kinds}
    costs, rng = world.costs, Random(f"reclaims {world.name} {world.seed}")
    backlogs = dict.fromkeys(world.demands, 0.0)
    hours = cost = late = 0.0
    for step in range(first, len(next(iter(world.demands.values())).tokens)):
        for key, pool in pools.items():
            pool.begin()
            chance = chances[key.kind]
            if chance:
                pool.serving -= sum(rng.random() < chance for _ in range(pool.serving))
        seen = Seen(
            {key: pool.present for key, pool in pools.items()},
            {key: pool.serving for key, pool in pools.items()},
            dict(backlogs),
        )
        wanted = controller(step, seen)
        for key, pool in pools.items():
            pool.scale(wanted[key])
            spent = pool.present * STEP_S / 3600.0
            hours += spent
            cost += spent * costs[key.kind]
        arriving = {region: demand.tokens[step] for region, demand in world.demands.items()}
        rates = {region: _rate(pools, region) for region in world.demands}
        moved = _moved(world, arriving, backlogs, rates)
        for region, rate in rates.items():
            own, backlog = arriving[region] - moved[region], backlogs[region]
            after = max(0.0, backlog + own - rate * STEP_S)
            late += own * (1.0 - below(backlog, after, SLO_S * rate))
            backlogs[region] = after
        if late > late_most:
            return None
    return Outcome(hours, 1.0 - late / total, cost)


def _rate(pools: dict[PoolKey, _Pool], region: str) -> float:
    """Return the tokens/s that the replicas of a region serve."""
    return THROUGHPUT * sum(pool.serving for key, pool in pools.items() if key.region == region)


def _moved(
    world: World,
    arriving: dict[str, float],
    backlogs: dict[str, float],
    rates: dict[str, float],
) -> dict[str, float]:
    """Return the tokens of each region that other regions serve in this step."""
    free = {
        region: rates[region] * STEP_S - backlogs[region] - arriving[region] for region in rates
    }
    moved = dict.fromkeys(rates, 0.0)
    for region, room in free.items():
        left = min(max(0.0, -room), world.spill * arriving[region])
        for other in free:
            taken = min(left, max(0.0, free[other]))
            free[other] -= taken
            left -= taken
            moved[region] += taken
    return moved


def below(begin: float, end: float, limit: float) -> float:
    """Return the share of a step in which a backlog, which changes linearly, is at most `limit`."""
    low, high = min(begin, end), max(begin, end)
    if high <= limit:
        return 1.0
    if low > limit or low == high:
        return 0.0
    return (limit - low) / (high - low)
