"""Sends no second copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.hedging.contract import Delay, HedgingPolicy, policy
from policies.hedging.curve import Curve


@policy("off")
@dataclass(slots=True)
class Off(HedgingPolicy):
    """Sends no second copies. No times are measured for this policy."""

    idle: ClassVar[bool] = True

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return None
