"""Makes what one router needs to share a fleet with others.

Must never: start anything.
"""

from __future__ import annotations

from typing import Final

from router.admission.pools import Pools
from router.fleet.table.fleet import Fleet
from router.share.limits_told import SharedLimits
from router.share.order import OthersOrder, OwnOrder
from router.share.others import Others
from router.share.own import Own

# A router leaves a free slot to another one for this many intervals: one until the other has heard
# of it, one until its answer is heard, and one for delays.
_PATIENCE: Final = 3.0
_MOST_S: Final = 0.2  # at most; with a longer interval the other router may come too late


def parts(
    router: str, fleet: Fleet, pools: Pools | None, limits: SharedLimits, interval_s: float
) -> tuple[Own, Others]:
    """`router`: its name, unique for each of its lives. `pools`: None if requests do not wait."""
    if pools is None:
        return Own(router, limits), Others(router, fleet, limits)
    own, others = OwnOrder(pools), OthersOrder(pools, min(_MOST_S, _PATIENCE * interval_s))
    return Own(router, limits, own), Others(router, fleet, limits, others)
