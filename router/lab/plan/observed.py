"""The data that a source of demand returns: the demand in time windows, and the running replicas.

Must never: read a file or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """A model in a region. The region is "" if the source does not name regions."""

    model: str
    region: str = ""

    def __str__(self) -> str:
        name = self.model or "(no model)"
        return f"{name} in {self.region}" if self.region else name


@dataclass(slots=True)
class Series:
    """The demand for a model in a region: one number in each list per window of `Observed`."""

    requests: list[float]
    prompt: list[float]  # prompt tokens that were not in an engine's cache
    output: list[float]  # output tokens

    @property
    def tokens(self) -> list[float]:
        """The sum of prompt and output tokens of each window."""
        return [prompt + output for prompt, output in zip(self.prompt, self.output, strict=True)]

    def prompt_share(self, windows: int) -> float:
        """Return prompt tokens as a share of all tokens of the last `windows` windows.

        Without any tokens the result is 0.5.
        """
        prompt, output = sum(self.prompt[-windows:]), sum(self.output[-windows:])
        return prompt / (prompt + output) if prompt + output > 0.0 else 0.5

    def tokens_per_request(self, windows: int) -> float:
        """Return the mean tokens of a request in the last `windows` windows.

        Without any requests the result is 0.
        """
        requests = sum(self.requests[-windows:])
        tokens = sum(self.prompt[-windows:]) + sum(self.output[-windows:])
        return tokens / requests if requests > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The throughput of one replica, measured in the busiest windows within the SLO."""

    tokens_per_s: float  # prompt and output tokens
    windows: int  # number of windows within the SLO that were compared
    busiest: int  # number of requests of the busiest window
    # Whether a busy window had requests that found no room. False: a replica may serve more.
    was_full: bool


@dataclass(slots=True, kw_only=True)
class Observed:
    """The demand in windows of equal length up to now, and the state of the fleet now."""

    source: str  # the name of the source, for the report
    window_s: float
    begin_s: float  # start of the first window, in seconds since 1970 or on the trace's clock
    demand: Mapping[Place, Series]
    # The number of replicas that run now, by type. A model and region that is absent has no
    # replicas. None: the replicas are unknown for all models and regions.
    running: Mapping[Place, Mapping[str, int]] | None = None
    # Seconds since the last start or stop of a replica. A model and region is absent if there was
    # no start or stop in the time that the source covers.
    unchanged_s: Mapping[Place, float] = field(default_factory=dict)
    # Number of requests that wait in a queue now, or the mean number in the last window.
    waiting: Mapping[Place, float] = field(default_factory=dict)
    # The throughput of a replica by model.
    throughput: Mapping[str, Measured] = field(default_factory=dict)
    # The models for which the types have a throughput that was measured without a full replica.
    at_least: frozenset[str] = frozenset()
    notes: Sequence[str] = ()

    def tokens_per_s(self, place: Place) -> float:
        """Return the demand of the last window in tokens/s."""
        series = self.demand[place].tokens if place in self.demand else []
        return series[-1] / self.window_s if series else 0.0

    @property
    def windows(self) -> int:
        return max((len(series.requests) for series in self.demand.values()), default=0)

    @property
    def now_s(self) -> float:
        """The end of the last window, on the same clock as `begin_s`."""
        return self.begin_s + self.windows * self.window_s
