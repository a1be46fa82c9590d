"""Computes the present state of a place (a model in a region).

The state has the replicas and their load, and says whether replicas may stop. All functions are
pure.

`steps`, `planned_windows`, `segments`: divides the coming time into segments, and computes the load
of the forecast demand in each.

A segment is a sequence of windows. In all windows of a segment, replicas of the same types are
serving if they are started now. The load of a model in a region is that of its busiest window in
the segment. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from typing import Final

from router.lab.plan.decision import reactive
from router.lab.plan.decision.problem import Segment
from router.lab.plan.decision.reactive import Scaled
from router.lab.plan.observed import Observed, Place
from router.lab.plan.types_file import ReplicaType, Types

MIX_S: Final = 86400.0  # seconds; the mix of prompt and output tokens is measured over the last day
# Reasons why no replica may stop.
QUEUE, COOLDOWN, FORECAST = "queue", "cool-down", "forecast"


@dataclass(frozen=True, slots=True)
class Present:
    """The present state of one place.

    `units`: by type, the number of replicas that one token/s of the usual mix keeps busy.
    """

    place: Place
    types: tuple[ReplicaType, ...]  # types that may serve the place
    counts: Mapping[str, int] | None  # number of replicas by type; None: unknown
    units: Mapping[str, float]
    prompt_share: float
    tokens_per_s: float  # demand of the last window
    waiting: float
    # Tokens/s that serve the waiting requests within one window. A waiting request has as many
    # tokens as the mean request of the last day.
    waiting_per_s: float
    unchanged_s: float | None  # seconds since the last start or stop; None: none is known
    # True: the throughput of the types was measured without a full replica, so it is a lower bound.
    is_at_least: bool = False

    @property
    def utilisation(self) -> float | None:
        """The busy share of the replicas in the last window; None: unknown, or no replica runs."""
        if self.counts is None or self.is_at_least:
            return None
        return reactive.utilisation(self._pools(self.tokens_per_s))

    def count(self, kind: str) -> int:
        return 0 if self.counts is None else self.counts.get(kind, 0)

    def limits(self, one: ReplicaType) -> tuple[int, int]:
        """Return the minimum and the maximum number of replicas of a type at the place.

        If the throughput is a lower bound, the maximum is the present number: no replica was full,
        and the log does not show how many more a larger demand needs.
        """
        speed = one.speed(self.place.model)
        assert speed is not None  # `types` has only types that serve the model
        if self.is_at_least:
            return speed.min, min(speed.max, self.count(one.name))
        return speed.min, speed.max

    def pools(self) -> list[Scaled]:
        """Return the replicas in the form that the reactive rule needs.

        The load has the waiting requests. Otherwise the utilisation of a full fleet would not tell
        how many replicas are missing, and a queue would be served by the spare replicas only.
        """
        return self._pools(self.tokens_per_s + self.waiting_per_s)

    def _pools(self, tokens_per_s: float) -> list[Scaled]:
        found = []
        for one in self.types:
            low, high = self.limits(one)
            load = tokens_per_s * self.units[one.name]
            found.append(Scaled(one.name, self.count(one.name), load, one.cost, low, high))
        return found

    def capacity(self, counts: Mapping[str, int]) -> float:
        """Return the tokens/s of the usual mix that these replicas serve, if used completely."""
        return sum(counts.get(one.name, 0) / self.units[one.name] for one in self.types)

    def bar(self, types: Types, high: Sequence[float], window_s: float) -> str:
        """Return why no replica may stop: `QUEUE`, `COOLDOWN` or `FORECAST`; "": replicas may stop.

        `high`: the upper bound of the forecast tokens of each coming window.
        """
        if self.counts is None:
            return ""
        if self.waiting > 0.0:
            return QUEUE
        if self.unchanged_s is not None and self.unchanged_s < types.cooldown_s:
            return COOLDOWN
        ahead = max(high[: max(1, round(types.scale_in_horizon_s / window_s))], default=0.0)
        capacity = self.capacity(self.counts)
        return FORECAST if ahead / window_s >= types.scale_in_below * capacity > 0.0 else ""


def present(types: Types, observed: Observed, place: Place) -> Present:
    """Return the state of a place. The place may have no demand."""
    series = observed.demand.get(place)
    windows = max(1, round(MIX_S / observed.window_s))
    share = 0.5 if series is None else series.prompt_share(windows)
    served = tuple(
        one
        for one in types.types
        if place.region in one.regions and one.speed(place.model) is not None
    )
    units = {}
    for one in types.types:
        speed = one.speed(place.model)
        if speed is not None:
            units[one.name] = speed.load(share, 1.0 - share)
    waiting = observed.waiting.get(place, 0.0)
    return Present(
        place=place,
        types=served,
        counts=None if observed.running is None else observed.running.get(place, {}),
        units=units,
        prompt_share=share,
        tokens_per_s=observed.tokens_per_s(place),
        waiting=waiting,
        waiting_per_s=0.0
        if series is None
        else waiting * series.tokens_per_request(windows) / observed.window_s,
        unchanged_s=observed.unchanged_s.get(place),
        is_at_least=place.model in observed.at_least,
    )


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
