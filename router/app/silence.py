"""Computes how long streaming clients have been waiting for content.

The time is counted from the last content, or from the arrival of the request if no content was sent
yet. It is computed for all requests in progress when the metrics are read. A client that stopped
reading is ignored, because the client itself causes the wait. Comments that keep the connection
open are not content.

Must never: make a request slower.
"""

from __future__ import annotations

from collections.abc import Iterable

from router.core.urgency import CLASSES
from router.dispatch.exchange import Exchange


def by_class(exchanges: Iterable[Exchange], now: float) -> dict[str, float]:
    """Return the longest time by priority class, in seconds; 0 if no stream is in progress."""
    longest = dict.fromkeys(CLASSES, 0.0)
    for x in exchanges:
        name = x.urgency.stated
        if name and x.view.stream and not x.deadlines.is_paused:
            longest[name] = max(longest[name], now - x.last_content_at())
    return longest
