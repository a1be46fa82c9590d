"""Two copies at once, for critical requests in an idle fleet.

Sending everything twice lowers the mean only below a threshold of utilisation: about 0.26 where
service times are all alike, 1/3 where they are exponential (Vulimiri et al., "Low Latency via
Redundancy", CoNEXT 2013). Prefill is nearly deterministic given its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.hedging.contract import Delay, HedgingPolicy, PolicyConfigError, policy
from policies.hedging.curve import Curve


@policy("immediate")
@dataclass(slots=True)
class Immediate(HedgingPolicy):
    """A copy of every critical request, at its dispatch, while the pool is known to be idle."""

    only: ClassVar[frozenset[str] | None] = frozenset({"critical"})

    utilisation: float = 0.3  # of the pool; nothing from here on

    def __post_init__(self) -> None:
        if not 0.0 <= self.utilisation <= 1.0:
            raise PolicyConfigError("utilisation is a share, 0 to 1", "utilisation")

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay()

    def most_utilised(self) -> float:
        return self.utilisation
