"""The earliest deadline first: the request's own, or else that of its class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.queueing.contract import Line, OrderPolicy, PolicyConfigError, order_policy
from policies.queueing.keyed import KeyedLine
from policies.queueing.slos import SLO_S, PerClass, check_per_class
from policies.queueing.ticket import Ticket


@order_policy("edf")
@dataclass(slots=True)
class Edf(OrderPolicy):
    """By deadline, across classes. Nobody waits for ever: every deadline becomes the earliest."""

    by_class: ClassVar[bool] = False
    starves: ClassVar[bool] = False

    slo_s: PerClass = SLO_S  # seconds to a first token: critical, high, normal, low, batch
    width_s: float = 0.1  # deadlines that count as equal where the prefix decides

    def __post_init__(self) -> None:
        check_per_class("slo_s", self.slo_s)
        if not 0.0 <= self.width_s <= 3600.0:
            raise PolicyConfigError("width_s is 0 to 3600", "width_s")

    def line(self, urgency: int) -> Line:
        return KeyedLine(self._deadline, self.width_s)

    def _deadline(self, ticket: Ticket) -> float:
        return min(ticket.deadline, ticket.arrival + self.slo_s[ticket.urgency])
