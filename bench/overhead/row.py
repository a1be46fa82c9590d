"""The results of one router: a value per figure and round, with median and spread.

Must never measure or judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any


@dataclass(slots=True)
class Row:
    """The results of one router. A figure without a value was not measured."""

    name: str
    version: str = "-"
    settings: str = ""
    absent: str = ""  # reason why the router was not measured
    samples: dict[str, dict[int, float]] = field(default_factory=dict)  # figure -> round -> value
    problems: dict[str, list[str]] = field(default_factory=dict)

    def add(self, figure: str, value: float, round_: int = 0) -> None:
        self.samples.setdefault(figure, {})[round_] = value

    def problem(self, figure: str, text: str) -> None:
        texts = self.problems.setdefault(figure, [])
        if text not in texts:
            texts.append(text)

    @property
    def figures(self) -> dict[str, float]:
        """The median of each figure over the rounds."""
        return {figure: median(rounds.values()) for figure, rounds in self.samples.items()}

    def spread(self, figure: str) -> tuple[float, float]:
        """Minimum and maximum of a figure over the rounds."""
        values = self.samples[figure].values()
        return min(values), max(values)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "figures": self.figures}


def ratios(own: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """Return one router's figure divided by another router's, for each round.

    Both routers were measured within seconds in each round, so under the same conditions.
    """
    return [value / other[n] for n, value in sorted(own.items()) if other.get(n, 0.0) > 0.0]
