"""Computes the token-level deadline-aware gain (TDG) and the SLO attainment of each class.

Source: PROSERVE (arXiv 2512.12928). Token i of a request counts with the worth of its class if it
arrives before `arrival + TTFT SLO + (i - 1) * TPOT SLO`. The simulator knows the times of the first
and the last token; the tokens between them are assumed to be evenly spaced. A failed request has no
token in time. Its tokens are included in the gain that was possible.

Pure. Must never depend on a policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.core.errors import Reason
from router.core.token_gain import on_time_evenly
from router.lab.simulator.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Slo:
    """The targets of one class in seconds, and the worth of one of its tokens."""

    ttft_s: float
    tpot_s: float
    worth: float


@dataclass(slots=True)
class Part:
    """Counts of requests and tokens of one class."""

    requests: int = 0
    in_slo: int = 0  # requests whose TTFT and mean time per token are both within the SLO
    in_ttft: int = 0
    tokens: int = 0
    on_time: int = 0

    def add(self, other: Part) -> None:
        self.requests += other.requests
        self.in_slo += other.in_slo
        self.in_ttft += other.in_ttft
        self.tokens += other.tokens
        self.on_time += other.on_time

    @property
    def attainment(self) -> float:
        """Share of the requests within the SLO, 0 to 1."""
        return self.in_slo / self.requests if self.requests else 0.0


@dataclass(slots=True)
class Score:
    """Counts the requests of one run by class, and computes the run's gain."""

    slos: Mapping[str, Slo]
    by_class: dict[str, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_class = {name: Part() for name in self.slos}

    def count(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        slo = self.slos[arrival.priority]
        part = self.by_class[arrival.priority]
        count = max(1, arrival.output_tokens)
        part.requests += 1
        part.tokens += count
        if outcome.reason is not Reason.OK or outcome.first < 0.0:
            return
        first_s = outcome.first - arrival.at
        tpot_s = (outcome.ended - outcome.first) / (count - 1) if count > 1 else 0.0
        first_due = arrival.at + slo.ttft_s
        part.on_time += int(
            on_time_evenly(first_due, slo.tpot_s, count, outcome.first, outcome.ended)
        )
        part.in_ttft += first_s <= slo.ttft_s
        part.in_slo += first_s <= slo.ttft_s and tpot_s <= slo.tpot_s

    @property
    def ratio(self) -> float:
        """The achieved gain divided by the gain if every token had arrived in time, 0 to 1."""
        achieved = attainable = 0.0
        for name, part in self.by_class.items():
            achieved += self.slos[name].worth * part.on_time
            attainable += self.slos[name].worth * part.tokens
        return achieved / attainable if attainable else 0.0
