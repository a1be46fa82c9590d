"""The time since streaming clients last received content, or since their request.

The times are computed on demand over all running requests; nothing is counted in between. A client
that stopped reading is left out, because the router is not the cause of its silence. A comment that
keeps the connection open does not count as content.

Must never: add a cost to a request.
"""

from __future__ import annotations

from collections.abc import Iterable

from router.core.urgency import CLASSES
from router.dispatch.exchange import Exchange


def by_class(exchanges: Iterable[Exchange], now: float) -> dict[str, float]:
    """The longest time by class, in seconds; 0: no stream, or all have just received content."""
    longest = dict.fromkeys(CLASSES, 0.0)
    for x in exchanges:
        name = x.urgency.stated
        if name and x.view.stream:
            longest[name] = max(longest[name], now - x.shown_at())
    return longest
