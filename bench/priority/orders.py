"""Lists the compared orders: no queue, first come first served (fifo), and every other policy."""

from __future__ import annotations

from typing import Final

from policies.queueing.contract import order_names
from router.config.model import Queue

NONE: Final = "no queue"
FIFO: Final = "fifo"
_KNOWN: Final = (
    *("strict", "aging", "round_robin", "fair", "drr"),
    *("dlpm", "shortest", "edf", "slide"),
)
# Orders that are not in `_KNOWN` come last.
ALL: Final = (NONE, FIFO, *_KNOWN, *(n for n in order_names() if n not in (FIFO, *_KNOWN)))


def rules(order: str) -> Queue:
    """Return the configuration of a queue with this order and otherwise default settings."""
    return Queue(enabled=False) if order == NONE else Queue(enabled=True, policy=order)
