"""The metrics of spot machines that are reclaimed.

Must never: change anything.
"""

from __future__ import annotations

from typing import Final

from router.app.reclaims import Reclaims
from router.observe.families.family import COUNTER, Family

FAMILIES: Final[tuple[Family[Reclaims], ...]] = (
    Family(
        "spot_notices",
        COUNTER,
        "Replicas whose machine was announced to be reclaimed, by source of the notice.",
        lambda reclaims: {source: float(n) for source, n in reclaims.notices.items()},
        ("source",),
    ),
    Family(
        "spot_moved",
        COUNTER,
        "Requests moved away from reclaimed machines: sent again without content, or continued.",
        lambda reclaims: {how: float(n) for how, n in reclaims.moved.items()},
        ("how",),
    ),
    Family(
        "spot_left",
        COUNTER,
        "Requests that were still running at a replica when its machine was due to go away.",
        lambda reclaims: reclaims.left,
    ),
)
