"""Divides the coming time into segments, and computes the load of the forecast demand in each.

A segment is a sequence of windows. In all windows of a segment, replicas of the same types are
serving if they are started now. The load of a model in a region is that of its busiest window in
the segment. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil

from router.lab.plan.decision.present import Present
from router.lab.plan.decision.problem import Segment
from router.lab.plan.observed import Place
from router.lab.plan.types_file import Types


def steps(types: Types, window_s: float) -> int:
    """Return the number of windows that a forecast must have."""
    return max(1, ceil(types.horizon_s / window_s - 1e-9))


def planned_windows(types: Types, window_s: float) -> int:
    """Return the number of windows that a plan must serve.

    After these windows, replicas that the next plan starts are serving.
    """
    lead_s = max(one.lead_s for one in types.types)
    return max(1, ceil((lead_s + types.period_s) / window_s - 1e-9))


def segments(types: Types, window_s: float, *, has_leads: bool = True) -> list[Segment]:
    """Return the segments, without loads.

    A started replica counts in a window if it serves for at least half of the window. `has_leads`
    False: the present replicas are unknown, so every replica counts from now on.
    """

    def starting(window: int) -> frozenset[str]:
        return frozenset(
            one.name
            for one in types.types
            if not has_leads or one.lead_s <= (window + 0.5) * window_s
        )

    found = []
    for names, windows in groupby(range(planned_windows(types, window_s)), starting):
        numbers = list(windows)
        found.append(Segment(numbers[0], numbers[-1] + 1, names))
    return found


def loaded(
    segment: Segment,
    tokens: Mapping[Place, Sequence[float]],
    present: Mapping[Place, Present],
    window_s: float,
) -> Segment:
    """Return the segment with its loads. `tokens`: the forecast demand of each coming window.

    The replicas of each segment must also serve the requests that wait now, within one window.
    """
    loads = {}
    for place, ahead in tokens.items():
        rate = max(ahead[segment.first : segment.end], default=0.0) / window_s
        rate += present[place].waiting_per_s
        for kind, unit in present[place].units.items():
            loads[place, kind] = rate * unit
    return replace(segment, loads=loads)
