"""Orders by deadline under light load, and by worth under overload: SlideBatching (PROSERVE)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from policies.queueing.contract import OrderPolicy, PolicyConfigError, TicketQueue, order_policy
from policies.queueing.shared import check_share
from policies.queueing.sliding import SlidingQueue, Slope


@order_policy("slide")
@dataclass(slots=True)
class Slide(OrderPolicy):
    """A request is urgent if the prefill of all waiting requests takes longer than the time to its
    deadline. Urgent requests are ordered by worth per second of prefill, the others by deadline.
    The worth of a request is the `weight` of its class times the `weight` of its API key.
    """

    by_class: ClassVar[bool] = False

    prefill_rate: float = 10_000.0  # Prompt tokens that one replica prefills in a second.
    # The part of an engine step's time, in seconds, that does not depend on its tokens.
    base_s: float = 0.04
    eagerness: float = 1.0  # With a higher value, more requests are urgent.
    # A request that is late by this share of its key's or its class's TTFT SLO goes after all
    # others.
    lateness: float = 0.25
    # A cached prefix decides among deadlines that differ by at most this share of the TTFT SLO, and
    # among urgent requests whose worth per second differs by at most this share.
    width: float = 0.25

    _slope: Slope = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_share("width", self.width)
        for option in ("prefill_rate", "base_s", "eagerness", "lateness"):
            if not 0.0 < getattr(self, option) < float("inf"):
                raise PolicyConfigError(f"{option} must be above 0", option)
        self._slope = Slope(
            self.prefill_rate, self.base_s, self.eagerness, self.lateness, self.width
        )

    def line(self, urgency: int) -> TicketQueue:
        return SlidingQueue(self._slope)

    def sized(self, replicas: int) -> None:
        self._slope.replicas = max(1, replicas)
