"""The regions to which a request may be sent, as a hard limit (data residency).

Every attempt of a request goes to a replica of an allowed region: the first choice, retries,
hedges, continuations, and requests that wait in the queue. If no such replica is up, the request
waits or fails.

Pure. Must never: express a preference; the preferred region is in `RequestView.region`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Neither character is allowed in the name of a region (`config/checks.py`).
_BEGIN: Final = "\x02"
_NEXT: Final = "\x01"


class AllowedRegions:
    """A set of regions. The object never changes, and all requests of one key share it."""

    __slots__ = ("lane", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        # The same set as text. It ends the names of queue lanes, and is a key of caches.
        self.lane = _BEGIN + _NEXT.join(sorted(self.names))

    def allows(self, region: str) -> bool:
        """Whether a request may be sent to a replica of `region`."""
        return region in self.names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllowedRegions) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __str__(self) -> str:
        return ", ".join(sorted(self.names))


def lane_of(model: str, allowed: AllowedRegions | None) -> str:
    """Return the name of the queue lane of a model's requests that may use these regions.

    `allowed`: `None` means all regions.
    """
    return model if allowed is None else model + allowed.lane


def read_lane(lane: str) -> tuple[str, AllowedRegions | None]:
    """Return the model and the regions of a lane; the reverse of `lane_of`.

    The regions follow the last separator, so the name of a model cannot add a region.
    """
    model, found, regions = lane.rpartition(_BEGIN)
    return (model, AllowedRegions(regions.split(_NEXT))) if found else (lane, None)
