"""Orders requests by their urgency number less rate * age, so that waiting makes them more urgent.

A rate of 0.1 levels a second raises a batch request (4) to normal (2) in 20 seconds. A rate of
1/300 does so in ten minutes, and raises it to high (1) in fifteen. So no rate makes a batch request
normal after ten minutes and high after twenty minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.queueing.aging_queue import AgingQueue
from policies.queueing.contract import OrderPolicy, PolicyConfigError, TicketQueue, order_policy


@order_policy("aging")
@dataclass(slots=True)
class Aging(OrderPolicy):
    """The request that is most urgent by its number and its age goes first, across classes.
    Requests whose urgency has reached the ceiling are ordered by arrival.
    """

    by_class: ClassVar[bool] = False
    starves: ClassVar[bool] = False

    rate: float = 1.0 / 300.0  # How fast a waiting request becomes more urgent, in levels a second.
    ceiling: float = 1.0  # The most urgent level that age can give; 1 is high.
    # A cached prefix decides among requests whose urgency differs by at most this many levels.
    width: float = 0.25

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1000.0:
            raise PolicyConfigError("rate must be above 0, in levels a second", "rate")
        if not 0.0 <= self.ceiling <= 4.0:
            raise PolicyConfigError("ceiling must be a level, 0 to 4", "ceiling")
        if not 0.0 <= self.width <= 1.0:
            raise PolicyConfigError("width must be a part of a level, 0 to 1", "width")

    def line(self, urgency: int) -> TicketQueue:
        return AgingQueue(self.rate, self.ceiling, self.width)
