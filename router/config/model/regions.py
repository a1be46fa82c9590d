"""Declares the section `regions`: which region a request goes to."""

from __future__ import annotations

from router.config.model.setting_types import Frozen, Seconds, Share


class RegionDistance(Frozen, frozen=True):
    """The distance between two regions, in both directions."""

    start: str  # A region.
    end: str  # Another region.
    rtt_s: Seconds  # The round-trip time between the two regions.


class Regions(Frozen, frozen=True):
    """Which region a request goes to. The nearest region is used until it is full."""

    # A region is full for a model when this share of its slots or of its KV caches is in use.
    # Requests for the model then go to the next nearest region.
    spill_at: Share = 0.7
    return_at: Share = 0.6  # A full region is used again below this utilisation.
    # The regions of clients by their network, such as 10.0.0.0/8. The region in the header
    # `x-region` and the region of the API key take precedence.
    networks: dict[str, str] = {}
    # Distances between regions. Unset: the measured round-trip times from the router.
    distances: tuple[RegionDistance, ...] = ()
