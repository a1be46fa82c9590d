"""Each tenant sends one request per turn, of any length (TNG, "LLM performance", part 1, 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from policies.queueing.contract import order_policy
from policies.queueing.flows import Tariff
from policies.queueing.shared import SharedByFlow, check_amount


@order_policy("round_robin")
@dataclass(slots=True)
class RoundRobin(SharedByFlow):
    """Keys take turns, and users take turns within their key. A key with weight 2 sends two
    requests per turn."""

    # A cached prefix decides among keys, and among users, that are at most this many turns apart.
    width: float = 4.0

    def __post_init__(self) -> None:
        check_amount("width", self.width)
        # A turn is a quantum of one request. All flows that have not had this turn yet are ranked
        # equally.
        self.open_books(Tariff(request=1.0, quantum=1.0, width=self.width))
