"""What a source returns: the demand of each model and region in windows, and the replicas.

Plain values. Must never: read a file or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """A model in a region. "" as the region: the source does not name regions."""

    model: str
    region: str = ""

    def __str__(self) -> str:
        name = self.model or "(no model)"
        return f"{name} in {self.region}" if self.region else name


@dataclass(slots=True)
class Series:
    """The demand of one place: one number for each window of `Observed`."""

    requests: list[float]
    prompt: list[float]  # prompt tokens that were not in an engine's cache
    output: list[float]  # output tokens

    @property
    def tokens(self) -> list[float]:
        """Prompt and output tokens of each window."""
        return [prompt + output for prompt, output in zip(self.prompt, self.output, strict=True)]

    def prompt_share(self, windows: int) -> float:
        """Prompt tokens as a share of all tokens of the last windows; 0.5 if there are none."""
        prompt, output = sum(self.prompt[-windows:]), sum(self.output[-windows:])
        return prompt / (prompt + output) if prompt + output > 0.0 else 0.5


@dataclass(frozen=True, slots=True)
class Measured:
    """The throughput of one replica, measured in the busiest windows within the SLO."""

    tokens_per_s: float  # prompt and output tokens
    windows: int  # windows within the SLO that were compared
    busiest: int  # requests of the busiest window


@dataclass(slots=True, kw_only=True)
class Observed:
    """The demand in equal windows up to now, and the state of the fleet now."""

    source: str  # for the report
    window_s: float
    begin_s: float  # start of the first window, in seconds since 1970 or on the trace's clock
    demand: Mapping[Place, Series]
    # Replicas now, by type; none at a place that is absent. None: unknown everywhere.
    running: Mapping[Place, Mapping[str, int]] | None = None
    # Seconds since the last start or stop of a replica. Absent: longer than the source goes back.
    unchanged_s: Mapping[Place, float] = field(default_factory=dict)
    waiting: Mapping[Place, float] = field(default_factory=dict)  # requests in a queue now
    throughput: Mapping[str, Measured] = field(default_factory=dict)  # by model
    notes: Sequence[str] = ()

    def tokens_per_s(self, place: Place) -> float:
        """The demand of the last window."""
        series = self.demand[place].tokens if place in self.demand else []
        return series[-1] / self.window_s if series else 0.0

    @property
    def windows(self) -> int:
        return max((len(series.requests) for series in self.demand.values()), default=0)

    @property
    def now_s(self) -> float:
        """The end of the last window, on the clock of `begin_s`."""
        return self.begin_s + self.windows * self.window_s
