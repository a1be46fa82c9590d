"""The distances between regions: configured round-trip times, else measured times.

The router measures the round-trip time from itself to each replica. So it knows the distance from
its own region to each other region. If no distance is configured between a client's region and
another region, the distance is that of the way through the router, because every request passes the
router.

A measured distance changes only if the new value differs by a fifth and by a millisecond.
Otherwise the order of two regions at the same distance would change with each measurement.

Pure. Must never: read a clock, or look at the load of a region.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

_SHARE: Final = 0.2  # The smallest change of a measured distance, as a share of the distance.
_LEAST_S: Final = 0.001  # The smallest change of a measured distance, in seconds.
# The distance to the router if it is unknown. It is longer than any configured distance, so regions
# at a configured distance come first, and the other regions in their order from the router.
_UNKNOWN_S: Final = 3600.0


class Distances:
    """The distances between the regions of one fleet, in seconds of round-trip time."""

    __slots__ = ("_configured", "_measured", "own")

    def __init__(self) -> None:
        self.own = ""  # The region of the router.
        self._configured: dict[tuple[str, str], float] = {}
        self._measured: dict[str, float] = {}

    def adopt(self, own: str, configured: Mapping[tuple[str, str], float]) -> None:
        """Apply a configuration. `configured`: seconds by pair of regions, for both directions."""
        if own != self.own:
            self._measured.clear()
        self.own = own
        self._configured = {}
        for (start, end), seconds in configured.items():
            self._configured[start, end] = self._configured[end, start] = seconds
            self._configured[start, start] = self._configured[end, end] = 0.0

    def measured(self, nearest: Mapping[str, float]) -> bool:
        """Store the measured distance of each region from the router.

        Returns whether a distance has changed. A region without a measurement is not in `nearest`.
        """
        changed = False
        for region, seconds in nearest.items():
            known = self._measured.get(region)
            if known is None or abs(seconds - known) > max(_LEAST_S, _SHARE * known):
                self._measured[region] = seconds
                changed = True
        for region in [r for r in self._measured if r not in nearest]:
            del self._measured[region]
            changed = True
        return changed

    def knows(self, region: str) -> bool:
        """Whether a distance of the region is configured."""
        return (region, region) in self._configured

    def between(self, start: str, end: str) -> float:
        """Return the distance between two regions. It may be very long if it is unknown."""
        if start == end:
            return 0.0
        seconds = self._configured.get((start, end))
        if seconds is not None:
            return seconds
        before = self._to_router(start)
        return before if end == self.own else before + self._measured.get(end, inf)

    def _to_router(self, start: str) -> float:
        if start == self.own:
            return 0.0
        seconds = self._configured.get((start, self.own))
        return self._measured.get(start, _UNKNOWN_S) if seconds is None else seconds
