"""Deadlines under light load, worth under overload: SlideBatching's sliding boundary (PROSERVE)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from policies.queueing.contract import Line, OrderPolicy, PolicyConfigError, order_policy
from policies.queueing.sliding import SlidingLine, Slope
from policies.queueing.slos import SLO_S, PerClass, check_per_class, check_width


@order_policy("slide")
@dataclass(slots=True)
class Slide(OrderPolicy):
    """Who has less time than what waits takes is urgent: most worth per second of prefill first.
    Who has more is not: earliest deadline first."""

    by_class: ClassVar[bool] = False

    slo_s: PerClass = SLO_S  # seconds to a first token: critical, high, normal, low, batch
    weights: PerClass = (16.0, 8.0, 4.0, 2.0, 1.0)  # worth of a first token in time
    prefill_rate: float = 10_000.0  # tokens/s of one replica
    base_s: float = 0.04  # seconds of a step that do not depend on its tokens
    eagerness: float = 1.0  # above 1 more is urgent
    starvation: float = 1.0  # deadlines missed by so many more come first
    # What counts as equal where the prefix decides: deadlines so near, of `slo_s`, and worth per
    # second that is less by such a share.
    width: float = 0.25

    _slope: Slope = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_per_class("slo_s", self.slo_s)
        check_per_class("weights", self.weights)
        check_width(self.width)
        for option in ("prefill_rate", "base_s", "eagerness", "starvation"):
            if not 0.0 < getattr(self, option) < float("inf"):
                raise PolicyConfigError(f"{option} is above 0", option)
        self._slope = Slope(
            self.slo_s,
            self.weights,
            self.prefill_rate,
            self.base_s,
            self.eagerness,
            self.starvation,
            self.width,
        )

    def line(self, urgency: int) -> Line:
        return SlidingLine(self._slope)

    def sized(self, replicas: int) -> None:
        self._slope.replicas = max(1, replicas)
