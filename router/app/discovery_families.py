"""The metrics of discovery. A label value is the name of a configured source.

Must never: change anything.
"""

from __future__ import annotations

from typing import Final

from router.app.discovered import Discovered
from router.core.clock import monotonic
from router.observe.families.family import COUNTER, GAUGE, Family
from router.observe.metrics import label


def _looks(discovered: Discovered) -> dict[tuple[str, ...], float]:
    return {(label(source), result): float(n) for (source, result), n in discovered.looks.items()}


FAMILIES: Final[tuple[Family[Discovered], ...]] = (
    Family(
        "discovery_replicas",
        GAUGE,
        "Replicas in the last valid answer of a source, by source.",
        lambda found: {label(source): float(n) for source, n in found.sizes.items()},
        ("source",),
    ),
    Family(
        "discovery_looks",
        COUNTER,
        "Looks at a source of replicas, by source and result; failed: also if only a part failed.",
        _looks,
        ("source", "result"),
    ),
    Family(
        "discovery_age_seconds",
        GAUGE,
        "Time since the last look at a source that had no problem, or since its first use.",
        lambda found: {label(s): monotonic() - at for s, at in found.seen_at.items()},
        ("source",),
    ),
)
