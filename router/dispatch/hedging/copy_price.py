"""The price of a copy at a replica: the share of its tokens that the hedging budget must pay.

The budget (`hedge_budget.py`) protects the throughput of a loaded fleet. A copy at an idle replica
delays no other request, so it costs nothing there. Two measures show how idle a replica is:

- The share of the last two minutes that the replica needed for the first tokens of the requests
  that this router sent there, copies included. Copies can at most double this share. In the bench
  of hedging, the share is about 0.17 at half of the saturation rate.
- Its requests in progress, those of other clients included. The prefill of a copy delays the next
  token of every stream there. A replica without requests may have a higher share: a copy there
  delays only requests that come during its prefill.

The price is 0 up to a low value of both measures, and rises with the higher one to 1. The price is
1 long before the limit of the pool's utilisation (`hedging.utilisation`) stops all copies.

Copies at idle replicas are bounded: a replica at which a request waits takes no copy
(`backups.py`), so each replica has at most one copy without content. Copies count as work, so many
copies make a replica busy.

Must never: read a clock.
"""

from __future__ import annotations

from math import exp
from typing import Final

WINDOW_S: Final = 120.0  # The time constant of the mean.
# Up to the first share of time, the price is 0; from the second one on, it is 1.
IDLE: Final = 0.06
BUSY: Final = 0.12
EMPTY_IDLE: Final = 0.15  # the same for a replica without requests
EMPTY_BUSY: Final = 0.3
FEW: Final = 4  # Up to so many requests in progress, the price is 0.
MANY: Final = 8  # From so many requests in progress on, the price is 1.


class RecentWork:
    """The time that a replica needed lately for first tokens. Times are monotonic seconds."""

    __slots__ = ("_at", "_seconds")

    def __init__(self) -> None:
        self._at = 0.0
        self._seconds = 0.0  # A sum in which older work counts less.

    def add(self, seconds: float, now: float) -> None:
        """Add the predicted time to the first token of a request that is sent now."""
        self._seconds = self._seconds * _fading(now - self._at) + seconds
        self._at = now

    def share(self, now: float) -> float:
        """Return the share of time that the replica needed; above 1 if it cannot keep up."""
        return self._seconds * _fading(now - self._at) / WINDOW_S


def _fading(elapsed_s: float) -> float:
    return exp(-max(0.0, elapsed_s) / WINDOW_S)


def price(share: float, load: int) -> float:
    """Return the price of a copy, 0 to 1. `share`: of time; `load`: requests in progress."""
    if not load:
        return min(1.0, max(0.0, (share - EMPTY_IDLE) / (EMPTY_BUSY - EMPTY_IDLE)))
    by_time = (share - IDLE) / (BUSY - IDLE)
    by_load = (load - FEW) / (MANY - FEW)
    return min(1.0, max(0.0, by_time, by_load))
