"""Urgency that grows with waiting: number - rate * age, and never more urgent than high.

A rate of 0.1 levels a second takes a batch request (4) to normal (2) in 20 seconds, one of 1/300 in
ten minutes. No rate gives both "normal after ten minutes" and "high after twenty".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.queueing.aging_line import AgingLine
from policies.queueing.contract import Line, OrderPolicy, PolicyConfigError, order_policy


@order_policy("aging")
@dataclass(slots=True)
class Aging(OrderPolicy):
    """The most urgent by number and age first, across classes; at the ceiling by arrival."""

    by_class: ClassVar[bool] = False
    starves: ClassVar[bool] = False

    rate: float = 1.0 / 300.0  # levels a second
    ceiling: float = 1.0  # age makes nobody more urgent than this: high
    width: float = 0.25  # levels that count as equal where the prefix decides

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1000.0:
            raise PolicyConfigError("rate is above 0, in levels a second", "rate")
        if not 0.0 <= self.ceiling <= 4.0:
            raise PolicyConfigError("ceiling is a level, 0 to 4", "ceiling")
        if not 0.0 <= self.width <= 1.0:
            raise PolicyConfigError("width is a part of a level, 0 to 1", "width")

    def line(self, urgency: int) -> Line:
        return AgingLine(self.rate, self.ceiling, self.width)
