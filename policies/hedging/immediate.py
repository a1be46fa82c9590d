"""Sends two copies of a critical request at once while the pool is idle.

Sending every request twice lowers the mean latency only below a threshold of utilisation: about
0.26 for equal service times, 1/3 for exponentially distributed ones (Vulimiri et al., "Low Latency
via Redundancy", CoNEXT 2013). The time of a prefill is nearly determined by the length of its
prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.hedging.contract import Delay, HedgingPolicy, PolicyConfigError, policy
from policies.hedging.curve import Curve


@policy("immediate")
@dataclass(slots=True)
class Immediate(HedgingPolicy):
    """Sends a copy of every critical request at its dispatch while the pool is known to be idle."""

    only: ClassVar[frozenset[str] | None] = frozenset({"critical"})

    utilisation: float = 0.3  # At or above this utilisation of the pool, no copy is sent.

    def __post_init__(self) -> None:
        if not 0.0 <= self.utilisation <= 1.0:
            raise PolicyConfigError("utilisation must be a share, 0 to 1", "utilisation")

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay()

    def most_utilised(self) -> float:
        return self.utilisation
