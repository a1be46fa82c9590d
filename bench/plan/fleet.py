"""Simulates a fleet as a fluid queue, and computes GPU-hours and SLO attainment of a controller.

In each step the replicas serve tokens up to their throughput; the remaining tokens wait. Tokens
that wait longer than `SLO_S` miss the SLO. A started replica costs GPU-hours at once, and serves
after the lead time; a stopped replica ends at once. The throughput of a replica is the highest one
within the SLO, so waits below that throughput are not modelled.

Pure. Must never depend on which controller it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.plan.traffic import STEP_S

THROUGHPUT: Final = 3000.0  # tokens/s of a replica within the SLO
SLO_S: Final = 5.0  # longest wait within the SLO, in seconds

# A function (step, replicas that run or start) -> replicas that should run.
Controller = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    gpu_hours: float
    attainment: float  # share of the tokens that waited at most `SLO_S`


def run(
    tokens: Sequence[float], first: int, replicas: int, controller: Controller, lead_s: float
) -> Outcome:
    """Simulate the steps from `first` on. `replicas` serve at the start; a new one needs `lead_s`.

    The controller is asked at the start of each step, when the demand of earlier steps is known.
    """
    serving, starting = replicas, [0] * round(lead_s / STEP_S)
    backlog = hours = in_time = 0.0
    for step in range(first, len(tokens)):
        serving += starting.pop(0)
        present = serving + sum(starting)
        change = controller(step, present) - present
        starting.append(max(0, change))
        # The replicas that started last are cancelled first.
        for place in range(len(starting) - 1, -1, -1):
            cancelled = min(starting[place], max(0, -change))
            starting[place] -= cancelled
            change += cancelled
        serving += min(0, change)
        hours += (serving + sum(starting)) * STEP_S / 3600.0
        rate = serving * THROUGHPUT
        after = max(0.0, backlog + tokens[step] - rate * STEP_S)
        in_time += tokens[step] * below(backlog, after, SLO_S * rate)
        backlog = after
    return Outcome(hours, in_time / sum(tokens[first:]))


def below(begin: float, end: float, limit: float) -> float:
    """Return the share of a step in which a backlog, which changes linearly, is at most `limit`."""
    low, high = min(begin, end), max(begin, end)
    if high <= limit:
        return 1.0
    if low > limit or low == high:
        return 0.0
    return (limit - low) / (high - low)
