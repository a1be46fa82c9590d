"""Generates two weeks of demand: the first is the history, the second is judged.

The seeded demand has a daily curve, quiet weekends, slow random changes and about one spike a day.
A trace can replace the spikes and the changes: each minute of the trace becomes one step, and the
trace is repeated to fill two weeks.

Pure, apart from the reading of a trace. The same seed gives the same demand.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, pi, sin
from random import Random
from statistics import fmean
from typing import Final

from bench.traces import PublicTrace

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
