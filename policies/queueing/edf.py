"""The earliest deadline first: that of its class, or within it the request's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.queueing.contract import Line, OrderPolicy, order_policy
from policies.queueing.keyed import KeyedLine
from policies.queueing.slos import SLO_S, PerClass, check_per_class, check_width, due
from policies.queueing.ticket import Ticket


@order_policy("edf")
@dataclass(slots=True)
class Edf(OrderPolicy):
    """By deadline, across classes. Nobody waits for ever: every deadline becomes the earliest."""

    by_class: ClassVar[bool] = False
    starves: ClassVar[bool] = False

    slo_s: PerClass = SLO_S  # seconds to a first token: critical, high, normal, low, batch
    width: float = 0.25  # deadlines so near count as equal where the prefix decides; of `slo_s`

    def __post_init__(self) -> None:
        check_per_class("slo_s", self.slo_s)
        check_width(self.width)

    def line(self, urgency: int) -> Line:
        return KeyedLine(self._deadline, self.width * self.slo_s[urgency])

    def _deadline(self, ticket: Ticket) -> float:
        return due(ticket, self.slo_s)
