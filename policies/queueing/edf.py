"""The request with the earliest deadline goes first: the deadline of its SLO or, if that is
earlier, the deadline that the client states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.queueing.contract import OrderPolicy, TicketQueue, order_policy
from policies.queueing.deadlines import DeadlineQueue
from policies.queueing.shared import check_share


@order_policy("edf")
@dataclass(slots=True)
class Edf(OrderPolicy):
    """The request whose first token has the earliest deadline goes first, across classes. No
    request waits for ever, because each deadline is the earliest at some time.
    """

    by_class: ClassVar[bool] = False
    starves: ClassVar[bool] = False

    # A cached prefix decides among deadlines that differ by at most this share of the TTFT SLO.
    width: float = 0.25

    def __post_init__(self) -> None:
        check_share("width", self.width)

    def line(self, urgency: int) -> TicketQueue:
        return DeadlineQueue(self.width)
