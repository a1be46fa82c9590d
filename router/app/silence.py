"""How long clients of streams have seen nothing: since they asked, or since the last content.

Looked up when somebody asks, over all requests under way; nothing is counted meanwhile. A client
that stopped reading is left out: what it does not see is its own doing. A comment that keeps its
connection open shows it nothing.

Must never: cost a request anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from router.core.urgency import CLASSES
from router.dispatch.exchange import Exchange


def by_class(exchanges: Iterable[Exchange], now: float) -> dict[str, float]:
    """The longest, in seconds; 0: nothing is streamed, or everybody has just seen something."""
    longest = dict.fromkeys(CLASSES, 0.0)
    for x in exchanges:
        name = x.urgency.stated
        if name and x.streamed:
            longest[name] = max(longest[name], now - x.shown_at())
    return longest
