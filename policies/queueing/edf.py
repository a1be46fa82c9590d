"""The request with the earliest deadline goes first: the deadline of its class, or its own deadline
if earlier.
"""

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
    """The earliest deadline goes first, across classes. No request waits for ever, because each
    deadline is the earliest at some time.
    """

    by_class: ClassVar[bool] = False
    starves: ClassVar[bool] = False

    # The time to a first token of each class, in seconds: critical, high, normal, low, batch.
    slo_s: PerClass = SLO_S
    # A cached prefix decides among deadlines that are at most this share of `slo_s` apart.
    width: float = 0.25

    def __post_init__(self) -> None:
        check_per_class("slo_s", self.slo_s)
        check_width(self.width)

    def line(self, urgency: int) -> Line:
        return KeyedLine(self._deadline, self.width * self.slo_s[urgency])

    def _deadline(self, ticket: Ticket) -> float:
        return due(ticket, self.slo_s)
